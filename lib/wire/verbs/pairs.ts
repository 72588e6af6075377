/**
 * The queue pairs of a node: each is brought up over a link of the sockets wire, and ends with it. The flows behind them, by the native
 * side's numbers, and its events.
 */
import { getSystemErrorName } from "node:util";
import { ClosedError, ConnectionLostError, HandshakeError, ShimError, ZapError } from "../../errors/index.ts";
import { GPUDIRECT_EVENT_BYTES, GPUDIRECT_EVENTS } from "../../ffi/index.ts";
import type { PeerBook } from "../common/book.ts";
import { Flow } from "../native/flow.ts";
import type { NativeHub } from "../native/hub.ts";
import type { Link } from "../sockets/index.ts";
import type { VerbsEngine } from "./engine.ts";
import type { VerbsOptions } from "./options.ts";
import type { VerbsPeer } from "./peer.ts";
import { downError } from "./reasons.ts";
import { readSaid, sayOffer, sayReady } from "./said.ts";
import { offerFault, readEvent, type NodeEvent } from "./structures.ts";

/** A port that is down for this long has lost its peers, milliseconds. Some devices try for ever to send. */
const PORT_DOWN_MILLIS = 5_000;

/** One attempt at a queue pair, and what became of it. */
export interface Pair {
  readonly peer: VerbsPeer;
  readonly link: Link;
  /** The native side's number; 0 where there is none any more. */
  number: number;
  /** Once the far end's offer was taken: messages may come. */
  flow: Flow | null;
  /** Our queue pair was brought up, and the far end was told. */
  risen: boolean;
  /** The far end has said that it is ready. */
  ready: boolean;
  /** Messages go, too. */
  up: boolean;
  /** Milliseconds of `performance.now()`. */
  readonly bornAt: number;
}

export class Pairs {
  /** The port is up, as far as we have heard. */
  portUp = true;
  private portDownAt = 0;
  /** Called when no flow is up any more. */
  onIdle: () => void = () => {};
  private readonly hub: NativeHub<VerbsEngine, VerbsOptions>;
  private readonly book: PeerBook<VerbsPeer>;
  private readonly pairs = new Map<Link, Pair>();
  /** Those that are down stay as long as messages of theirs are queued. */
  private readonly flows = new Map<number, Flow>();
  private readonly gone = new Set<Flow>();
  /** Those that messages went on, until the native side says that they are down. */
  private readonly live = new Set<Flow>();
  /** Why flows ended whose pair ended first. */
  private readonly causes = new Map<Flow, ZapError | null>();

  constructor(hub: NativeHub<VerbsEngine, VerbsOptions>, book: PeerBook<VerbsPeer>) {
    this.hub = hub;
    this.book = book;
  }

  get isIdle(): boolean {
    return this.live.size === 0;
  }

  /** Attempts that are not up. */
  get pending(): number {
    return this.pairs.size - [...this.pairs.values()].filter(({ up }) => up).length;
  }

  /** Whose messages come on flow `number`. A first one says that the far end is ready, whatever we have read of the link. */
  find(number: number): Flow | undefined {
    const flow = this.flows.get(number);
    const pair = (flow?.peer as VerbsPeer | undefined)?.pair ?? null;
    if (flow !== undefined && pair?.flow === flow && !pair.up) this.comeUp(pair, flow);
    return flow;
  }

  // ---- what the sockets wire reports

  /** A link is there: makes a queue pair and offers it. */
  begin(link: Link): void {
    const peer = this.book.of(link.peer);
    if (link.dialled) peer.address ??= link.address;
    const bornAt = performance.now();
    const pair: Pair = { peer, link, number: 0, flow: null, risen: false, ready: false, up: false, bornAt };
    peer.pair = pair;
    this.pairs.set(link, pair);
    if (!this.portUp) {
      const error = this.portError(peer.id);
      return queueMicrotask(() => link.fail(error));
    }
    try {
      const { flow, offer } = this.hub.engine.begin();
      pair.number = flow;
      link.say(sayOffer(offer));
    } catch (error) {
      if (!(error instanceof ZapError)) throw error;
      // Not from inside the call that tells of the link.
      queueMicrotask(() => link.fail(error));
    }
  }

  private portError(peer: string): ConnectionLostError {
    const { device, port } = this.hub.engine.info;
    return new ConnectionLostError(`peer ${peer}: port ${port} of the RDMA device ${device} is down`);
  }

  heard(link: Link, message: Uint8Array): void {
    const pair = this.pairs.get(link);
    if (pair === undefined || pair.number === 0) return;
    const said = readSaid(message);
    if (typeof said === "string") this.refuse(pair, said);
    else if (said.kind === "offer") this.takeOffer(pair, said.offer);
    else if (pair.flow === null) this.refuse(pair, "it was ready before it made an offer");
    else {
      pair.ready = true;
      if (pair.risen && !pair.up) this.comeUp(pair, pair.flow);
    }
  }

  private takeOffer(pair: Pair, offer: Uint8Array): void {
    if (pair.flow !== null) return this.refuse(pair, "it made a second offer on one link");
    const fault = offerFault(offer);
    if (fault !== null) return this.refuse(pair, fault);
    try {
      this.hub.engine.accept(pair.number, offer);
    } catch (cause) {
      if (!(cause instanceof ShimError)) throw cause;
      pair.number = 0;
      return this.refuse(pair, cause.message, cause);
    }
    pair.flow = new Flow(pair.number, pair.peer, pair.link.address, pair.link.dialled);
    this.flows.set(pair.number, pair.flow);
  }

  /** The native side has brought our queue pair up: the far end may send. */
  private rise(number: number): void {
    const flow = this.flows.get(number);
    const pair = (flow?.peer as VerbsPeer | undefined)?.pair ?? null;
    if (flow === undefined || pair?.flow !== flow) return;
    pair.risen = true;
    pair.link.say(sayReady());
    if (pair.ready && !pair.up) this.comeUp(pair, flow);
  }

  private refuse({ peer, link }: Pair, why: string, cause?: ZapError): void {
    const text = `peer ${peer.id} (${link.address}): RDMA cannot be set up: ${why}`;
    link.fail(new HandshakeError(text, cause === undefined ? undefined : { cause }));
  }

  private comeUp(pair: Pair, flow: Flow): void {
    const { hub } = this;
    const { peer, link } = pair;
    pair.up = true;
    this.live.add(flow);
    hub.emit({ type: "connected", peer: peer.id, address: link.address, dialled: link.dialled });
    peer.attach(flow);
    peer.settleConnects(null);
    if (hub.closing) hub.engine.closeFlow(flow.number);
  }

  /** A link is in use no more: its queue pair ends with it. */
  end(link: Link, error: ZapError | null): void {
    // The queue pair may have come to an orderly end before.
    this.catchUp();
    const pair = this.pairs.get(link);
    if (pair === undefined) return;
    const { number, flow } = pair;
    if (flow !== null && number !== 0) this.causes.set(flow, error);
    this.drop(pair, error);
    if (number !== 0) this.hub.engine.abortFlow(number);
  }

  /** The peer has no queue pair any more. `report` is told between what went wrong and the end of the connection. */
  private drop(pair: Pair, error: ZapError | null, report: () => void = () => {}): void {
    const { hub } = this;
    const { peer, link, up } = pair;
    this.pairs.delete(link);
    pair.number = 0;
    if (peer.pair !== pair) return report();
    peer.pair = null;
    const known = error !== null && peer.fault?.message === error.message;
    const lost = error ?? new ClosedError(`peer ${peer.id} hung up before RDMA was set up`);
    if (up) peer.detach(error);
    else {
      peer.fault = lost;
      peer.failedAt = performance.now();
      peer.settleConnects(lost);
    }
    // Said once per cause: attempts that fail must not fill the log.
    if (error !== null && !(known && !up)) hub.fault(peer.id, error);
    report();
    if (up) hub.emit({ type: "disconnected", peer: peer.id, error });
    this.book.forget(peer);
  }

  // ---- what the native side reports

  /** Takes in every event that was written, and asks to be woken by the next. */
  catchUp(): void {
    const { events, eventBytes } = this.hub.engine;
    if (events.available === 0 && events.armed) return;
    do {
      while (events.available > 0) {
        const at = events.at(0) * 4;
        const event = readEvent(eventBytes.subarray(at, at + GPUDIRECT_EVENT_BYTES));
        events.consume(1);
        if (event.kind === GPUDIRECT_EVENTS.down) this.down(event);
        else if (event.kind === GPUDIRECT_EVENTS.up) this.rise(event.flow);
        else if (event.kind === GPUDIRECT_EVENTS.port) this.portChanged(event.reason === 1);
      }
    } while (!events.arm());
  }

  private portChanged(up: boolean): void {
    if (this.portUp && !up) this.portDownAt = performance.now();
    this.portUp = up;
  }

  private down(event: NodeEvent): void {
    const flow = this.flows.get(event.flow);
    if (flow === undefined || flow.until !== Infinity) return;
    const { hub } = this;
    const peer = flow.peer as VerbsPeer;
    // All that comes back was written before; whoever waits in place is told first.
    hub.outbox.drain();
    flow.until = event.messages;
    this.gone.add(flow);
    const pair = peer.pair?.flow === flow ? peer.pair : null;
    const error = this.errorOf(event, flow);
    if (pair !== null) this.downFirst(pair, flow, event, error);
    else this.reportFailed(flow, event, error);
    // Its room is others' now.
    hub.outbox.admit();
    if (this.live.delete(flow) && this.isIdle) this.onIdle();
  }

  private downFirst(pair: Pair, flow: Flow, event: NodeEvent, error: ConnectionLostError | null): void {
    this.drop(pair, error, () => this.reportFailed(flow, event, error));
    // Another queue pair needs another link.
    if (error !== null) pair.link.fail(error);
  }

  private errorOf({ reason, status, error }: NodeEvent, flow: Flow): ConnectionLostError | null {
    const { engine } = this.hub;
    const cause = error === 0 ? "" : getSystemErrorName(-error);
    const detail = status === 0 ? cause : engine.nameIn("status", status);
    return downError(flow.peer.id, reason, engine.nameIn("reason", reason), detail);
  }

  private reportFailed(flow: Flow, event: NodeEvent, error: ZapError | null): void {
    const cause = this.causes.get(flow) ?? error;
    this.causes.delete(flow);
    const failed = Math.max(event.undelivered - flow.rejected, flow.failed);
    this.hub.reportUndelivered(flow.peer.id, failed - flow.reported, cause);
    flow.reported = failed;
  }

  /** What depends on time. */
  round(now: number): void {
    const { hub } = this;
    const { handshakeMillis } = hub.limits;
    const portLost = !this.portUp && now - this.portDownAt >= PORT_DOWN_MILLIS;
    for (const pair of [...this.pairs.values()]) {
      if (portLost) pair.link.fail(this.portError(pair.peer.id));
      if (pair.up || now - pair.bornAt < handshakeMillis) continue;
      this.refuse(pair, `it was not finished within ${handshakeMillis} ms (limits.handshakeMillis)`);
    }
    for (const flow of this.gone) {
      if (hub.engine.handoff.count < flow.until) continue;
      this.gone.delete(flow);
      this.flows.delete(flow.number);
    }
    for (const flow of this.flows.values()) {
      flow.nextLease();
      hub.reportUndelivered(flow.peer.id, flow.failed - flow.reported, null);
      flow.reported = Math.max(flow.reported, flow.failed);
    }
  }

  /** Has every flow deliver what it has, and end. */
  close(): void {
    for (const { up, number } of this.pairs.values()) if (up) this.hub.engine.closeFlow(number);
  }

  clear(): void {
    this.pairs.clear();
    this.flows.clear();
    this.gone.clear();
    this.causes.clear();
  }
}
