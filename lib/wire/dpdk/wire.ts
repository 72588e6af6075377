/** The node: what the parts of the dpdk wire add up to. */
import { AbortedError, ClosedError, PeerUnreachableError, PoolError, ZapError } from "../../errors/index.ts";
import { leakText, type MemoryKind } from "../../memory/index.ts";
import { formatAddress, parseAddress } from "../common/address.ts";
import { PeerBook } from "../common/book.ts";
import { Breather } from "../common/breather.ts";
import { EventQueue } from "../common/events.ts";
import { EnvelopeIterator } from "../common/iterator.ts";
import { sendFault, unknownPeer } from "../common/sendable.ts";
import type { CloseReport, Envelope, WireStats } from "../contract.ts";
import { Caretaker } from "../native/caretaker.ts";
import { Dialler, type Dial } from "./dialler.ts";
import type { Engine } from "./engine.ts";
import { Flows } from "./flows.ts";
import { Hub } from "./hub.ts";
import { NativeInbox } from "../native/inbox.ts";
import { NodeMemory, type RegionOnDevice } from "../native/memory.ts";
import type { DpdkOptions } from "./options.ts";
import { Peer } from "../native/peer.ts";
import { StatsReader } from "./stats.ts";

/** Resolved already: a `send` that was handed over at once allocates nothing. */
const DONE = Promise.resolve();
/** What the node may take longer than `limits.closeMillis` to say that it has closed a flow. */
const CLOSE_GRACE_MILLIS = 250;

export interface DpdkParts {
  readonly engine: Engine;
  /** Over the pool's area of the engine's region. */
  readonly kind: MemoryKind;
  /** Where a GPU knows the region. */
  readonly device: RegionOnDevice | null;
  readonly debug: boolean;
}

export class DpdkWire {
  readonly nodeId: string;
  readonly addresses: readonly string[];
  readonly memory: NodeMemory;
  private readonly hub: Hub;
  private readonly engine: Engine;
  private readonly book: PeerBook<Peer>;
  private readonly dialler: Dialler;
  private readonly inbox: NativeInbox;
  private readonly caretaker: Caretaker;
  private readonly counted: StatsReader;
  private readonly sendBreather = new Breather();
  private readonly recvBreather = new Breather(() => this.inbox.pump());
  private readonly flows: Flows;
  private unread = 0;
  private nodeClosed = false;
  private closed: Promise<CloseReport> | null = null;

  private constructor(options: DpdkOptions, engine: Engine, memory: NodeMemory, events: EventQueue) {
    this.nodeId = options.nodeId;
    this.addresses = options.addresses;
    this.memory = memory;
    this.engine = engine;
    const hub = new Hub(options, engine, memory, events);
    this.hub = hub;
    this.book = new PeerBook(options.limits.connections, (id) => new Peer(id, hub));
    this.dialler = new Dialler(hub);
    this.flows = new Flows(hub, this.book, this.dialler);
    this.inbox = new NativeInbox({
      handoff: engine.handoff,
      returns: engine.returns,
      memory,
      catchUp: () => this.flows.catchUp(),
      flow: (number) => this.flows.find(number),
      breather: this.recvBreather,
      unreleased: ({ peerId, held }) => hub.emit({ type: "unreleased", peer: peerId, envelopes: held }),
    });
    this.counted = new StatsReader(engine, options.device);
    for (const [id, address] of options.peers) {
      const peer = this.book.of(id);
      peer.address = address;
      peer.configured = true;
    }
    this.caretaker = new Caretaker(options.limits, (now) => this.round(now));
    engine.onWake = () => this.look();
    this.look();
  }

  /**
   * Puts a node that is open to use, and begins to dial the configured peers. Takes over all parts, also where it rejects; then nothing
   * stays open.
   */
  static async open(options: DpdkOptions, parts: DpdkParts): Promise<DpdkWire> {
    const { engine, kind, device, debug } = parts;
    const events = new EventQueue(options.onEvent);
    const fault = (error: PoolError): void => events.emit({ type: "error", peer: null, error });
    const memory = new NodeMemory(engine, kind, device, {
      debug,
      setting: "ZAP_DPDK_REGION_BYTES",
      onLeak: (leak) => fault(new PoolError(leakText(leak))),
      onFault: fault,
    });
    try {
      const wire = new DpdkWire(options, engine, memory, events);
      wire.round(performance.now());
      return wire;
    } catch (error) {
      // What went wrong first is what counts.
      await engine.close().catch(() => {});
      await memory.close().catch(() => {});
      throw error;
    }
  }

  // ---- what the node reports

  /** Something has come into a ring. */
  private look(): void {
    if (this.nodeClosed) return;
    this.flows.catchUp();
    this.hub.outbox.turn();
    if (!this.hub.closing) return this.inbox.pump();
    // What comes after `close()` is thrown away; left where it is, it would keep the far end from finishing.
    do this.unread += this.inbox.discard();
    while (!this.inbox.arm());
  }

  /** What depends on time. */
  private round(now: number): void {
    this.look();
    this.flows.round();
    for (const peer of this.book.all()) {
      peer.expire(now);
      this.dialler.keepUp(peer, now);
      this.book.forget(peer);
    }
    this.book.trim();
  }

  // ---- the contract

  peers(): string[] {
    return this.book
      .all()
      .filter((peer) => peer.flow !== null)
      .map((peer) => peer.id);
  }

  send(id: string, message: Uint8Array, signal?: AbortSignal): Promise<void> {
    const { hub, sendBreather } = this;
    const fault = sendFault(message, hub);
    if (fault !== null) return Promise.reject(fault);
    if (hub.closing) return Promise.reject(new ClosedError("send: the transport is closed"));
    const peer = this.book.find(id);
    if (peer === undefined) return Promise.reject(unknownPeer(id));
    if ((signal === undefined || !signal.aborted) && peer.accept(message)) {
      sendBreather.count(message.length);
      return sendBreather.pending ?? DONE;
    }
    if (peer.flow === null && peer.address === null) return Promise.reject(peer.unreachable("now"));
    const pending = peer.enqueue(message, signal);
    if (peer.flow === null) this.dialler.keepUp(peer, performance.now());
    sendBreather.count(message.length);
    const breather = sendBreather.pending;
    return breather === null ? pending : pending.then(() => breather);
  }

  /** `send` where it needs no waiting, without a promise. False where it does; throws what `send` would reject with. */
  trySend(id: string, message: Uint8Array): boolean {
    const fault = sendFault(message, this.hub);
    if (fault !== null) throw fault;
    if (this.hub.closing) throw new ClosedError("trySend: the transport is closed");
    const peer = this.book.find(id);
    if (peer === undefined) throw unknownPeer(id);
    if (this.sendBreather.pending !== null || !peer.accept(message)) return false;
    this.sendBreather.count(message.length);
    return true;
  }

  recv(signal?: AbortSignal): Promise<Envelope> {
    return this.inbox.recv(signal);
  }

  iterate(): AsyncIterator<Envelope> {
    return new EnvelopeIterator(this.inbox);
  }

  /** The next message if one is queued, without a promise. */
  tryRecv(): Envelope | null {
    return this.inbox.take() ?? null;
  }

  connect(address: string, signal?: AbortSignal): Promise<string> {
    const { hub } = this;
    if (hub.closing) return Promise.reject(new ClosedError("connect: the transport is closed"));
    if (signal?.aborted) return Promise.reject(new AbortedError("connect", signal.reason));
    let target: string;
    try {
      target = formatAddress(parseAddress(address));
    } catch (error) {
      return Promise.reject(error as Error);
    }
    return new Promise((resolve, reject) => {
      const { sendMillis } = hub.limits;
      const onAbort = (): void => this.dialler.abandon(dial, new AbortedError("connect", signal?.reason));
      const late = `${target} was not reached within ${sendMillis} ms (limits.sendMillis)`;
      const timer = setTimeout(() => this.dialler.abandon(dial, new PeerUnreachableError(late)), sendMillis);
      signal?.addEventListener("abort", onAbort, { once: true });
      const dial: Dial = this.dialler.dial(target, null, (outcome) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
        if (outcome instanceof ZapError) reject(outcome);
        else resolve(outcome.id);
      });
    });
  }

  stats(): WireStats {
    const { hub, inbox } = this;
    const { outbox } = hub;
    const node = this.counted.read(!this.nodeClosed);
    return {
      messagesIn: node.messagesIn,
      messagesOut: outbox.messagesOut,
      bytesIn: node.bytesIn,
      bytesOut: outbox.bytesOut,
      queuedOutMessages: outbox.queuedMessages,
      queuedOutBytes: outbox.queuedBytes,
      queuedInMessages: this.nodeClosed ? 0 : node.queuedMessages,
      queuedInBytes: this.nodeClosed ? 0 : node.queuedBytes,
      waitingSends: this.book.all().reduce((sum, peer) => sum + peer.waiting, 0),
      waitingRecvs: inbox.waiting,
      connections: this.peers().length,
      handshakes: this.nodeClosed ? 0 : node.candidates + this.dialler.count,
      bytesCopied: node.bytesCopied,
      drops: { ...node.drops },
      undelivered: hub.undelivered,
      port: node.port,
    };
  }

  // ---- the end

  close(): Promise<CloseReport> {
    return (this.closed ??= this.shut());
  }

  private async shut(): Promise<CloseReport> {
    const { hub, engine, inbox, dialler } = this;
    const undeliveredBefore = hub.undelivered;
    hub.closing = true;
    inbox.close();
    dialler.close(new ClosedError("connect: the transport was closed"));
    for (const peer of this.book.all()) peer.rejectWaiters();
    this.flows.close();
    hub.outbox.beginEnd();
    this.look();
    await this.idle(hub.limits.closeMillis + CLOSE_GRACE_MILLIS);
    this.look();
    this.caretaker.stop();
    this.counted.read(true);
    inbox.end();
    this.nodeClosed = true;
    const closedError = new ClosedError("send: the transport was closed before the message was delivered");
    try {
      await engine.close();
    } finally {
      hub.outbox.end(closedError, ({ peer, reported, failed }, messages) =>
        hub.reportUndelivered(
          peer.id,
          messages + failed - reported,
          new ClosedError("the transport was closed"),
        ),
      );
      this.endPeers();
    }
    const left = await this.memory.close();
    return { undelivered: hub.undelivered - undeliveredBefore, unread: this.unread, buffers: left.buffers };
  }

  private endPeers(): void {
    for (const peer of this.book.all()) {
      if (peer.flow === null) continue;
      peer.detach(null);
      this.hub.emit({ type: "disconnected", peer: peer.id, error: null });
    }
    this.book.clear();
    this.flows.clear();
  }

  /** Resolves when no flow is left, or after `millis`. */
  private idle(millis: number): Promise<void> {
    if (this.flows.live === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, millis);
      this.flows.onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
