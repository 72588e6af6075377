/** The flows of a node, by its numbers: its events, and what they mean for peers. */
import { ConnectionLostError } from "../../errors/index.ts";
import { DPDK_EVENT_BYTES, DPDK_EVENTS } from "../../ffi/index.ts";
import { formatHostPort } from "../common/address.ts";
import type { PeerBook } from "../common/book.ts";
import type { Dialler } from "./dialler.ts";
import { Flow } from "../native/flow.ts";
import type { Hub } from "./hub.ts";
import { ipText } from "./ip.ts";
import type { Peer } from "../native/peer.ts";
import { downError, REASON } from "./reasons.ts";
import { readEvent, type NodeEvent } from "./structures.ts";

export class Flows {
  /** Those that are up. */
  live = 0;
  /** Called when none is. */
  onIdle: () => void = () => {};
  private readonly hub: Hub;
  private readonly book: PeerBook<Peer>;
  private readonly dialler: Dialler;
  /** Those that are down stay as long as messages of theirs are queued. */
  private readonly flows = new Map<number, Flow>();
  private readonly gone = new Set<Flow>();

  constructor(hub: Hub, book: PeerBook<Peer>, dialler: Dialler) {
    this.hub = hub;
    this.book = book;
    this.dialler = dialler;
  }

  find(number: number): Flow | undefined {
    return this.flows.get(number);
  }

  /** Takes in every event that was written, and asks to be woken by the next. */
  catchUp(): void {
    const { events, eventBytes } = this.hub.engine;
    if (events.available === 0 && events.armed) return;
    do {
      while (events.available > 0) {
        const at = events.at(0) * 4;
        const event = readEvent(eventBytes.subarray(at, at + DPDK_EVENT_BYTES));
        events.consume(1);
        this.heard(event);
      }
    } while (!events.arm());
  }

  private heard(event: NodeEvent): void {
    switch (event.kind) {
      case DPDK_EVENTS.up:
        return this.up(event);
      case DPDK_EVENTS.down:
        return this.down(event);
      case DPDK_EVENTS.dialled: {
        const flow = this.flows.get(event.flow);
        if (event.reason === REASON.duplicate && flow !== undefined)
          return this.dialler.reached(event.number, flow.peer);
        return this.dialler.ended(event.number, event.reason);
      }
    }
  }

  private up(event: NodeEvent): void {
    const { hub } = this;
    const peer = this.book.of(event.id);
    const address = formatHostPort(ipText(event.ip), event.port);
    const flow = new Flow(event.flow, peer, address, event.dialled);
    this.flows.set(flow.number, flow);
    this.live++;
    if (peer.flow !== null) {
      const error = new ConnectionLostError(
        `peer ${peer.id}: another connection has taken the place of this one`,
      );
      peer.detach(error);
      hub.emit({ type: "disconnected", peer: peer.id, error });
    }
    hub.emit({ type: "connected", peer: peer.id, address, dialled: event.dialled });
    peer.attach(flow);
    if (event.number !== 0) this.dialler.reached(event.number, peer);
    if (hub.closing) this.hub.engine.closeFlow(flow.number);
  }

  private down(event: NodeEvent): void {
    const flow = this.flows.get(event.flow);
    if (flow === undefined || flow.until !== Infinity) return;
    const { hub } = this;
    // All that comes back was written before; whoever waits in place is told first.
    hub.outbox.drain();
    this.live--;
    flow.until = event.messages;
    this.gone.add(flow);
    const { peer } = flow;
    const error = downError(peer.id, event.reason, this.hub.engine.nameIn("reason", event.reason));
    const current = peer.flow === flow;
    if (current) peer.detach(error);
    if (error !== null && current) hub.fault(peer.id, error);
    const failed = Math.max(event.undelivered - flow.rejected, flow.failed);
    hub.reportUndelivered(peer.id, failed - flow.reported, error);
    flow.reported = failed;
    if (current) {
      hub.emit({ type: "disconnected", peer: peer.id, error });
      // One that comes and goes is dialled ever more rarely; one that stayed a while is dialled at once.
      if (performance.now() - flow.bornAt >= hub.limits.reconnectMaxMillis) peer.attempts = 0;
      if (peer.address !== null) this.dialler.pause(peer);
      this.book.forget(peer);
    }
    // Its room is others' now.
    hub.outbox.admit();
    if (this.live === 0) this.onIdle();
  }

  /** What depends on time. */
  round(): void {
    for (const flow of this.gone) {
      if (this.hub.engine.handoff.count < flow.until) continue;
      this.gone.delete(flow);
      if (this.flows.get(flow.number) === flow) this.flows.delete(flow.number);
    }
    for (const flow of this.flows.values()) {
      flow.nextLease();
      this.hub.reportUndelivered(flow.peer.id, flow.failed - flow.reported, null);
      flow.reported = Math.max(flow.reported, flow.failed);
    }
  }

  /** Has every flow deliver what it has, and end. */
  close(): void {
    for (const flow of this.flows.values())
      if (flow.until === Infinity) this.hub.engine.closeFlow(flow.number);
  }

  clear(): void {
    this.flows.clear();
    this.gone.clear();
  }
}
