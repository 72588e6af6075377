/** The node: what the parts of the verbs wire add up to. */
import { AbortedError, ClosedError, PeerUnreachableError, PoolError, ZapError } from "../../errors/index.ts";
import { leakText, type MemoryKind } from "../../memory/index.ts";
import { PeerBook } from "../common/book.ts";
import { Breather } from "../common/breather.ts";
import { EventQueue } from "../common/events.ts";
import { EnvelopeIterator } from "../common/iterator.ts";
import { sendFault, unknownPeer } from "../common/sendable.ts";
import type { CloseReport, Envelope, WireStats } from "../contract.ts";
import { Caretaker } from "../native/caretaker.ts";
import { NativeHub } from "../native/hub.ts";
import { NativeInbox } from "../native/inbox.ts";
import { NodeMemory, type ReceivedOnDevice, type RegionOnDevice } from "../native/memory.ts";
import { SocketsWire, type Above, type Link } from "../sockets/index.ts";
import type { VerbsEngine } from "./engine.ts";
import type { VerbsOptions } from "./options.ts";
import { Pairs } from "./pairs.ts";
import { VerbsPeer } from "./peer.ts";
import { StatsReader } from "./stats.ts";

/** Resolved already: a `send` that was handed over at once allocates nothing. */
const DONE = Promise.resolve();
/** What the node may take longer than `limits.closeMillis` to say that it has closed a flow. */
const CLOSE_GRACE_MILLIS = 250;

export interface VerbsParts {
  readonly engine: VerbsEngine;
  /** Over the pool's area of the engine's region. */
  readonly kind: MemoryKind;
  /** Where a GPU knows the region: then the region is the kind's. */
  readonly device: RegionOnDevice | null;
  /** The GPU's own memory that messages are received into, if they are; it ends with `kind`. */
  readonly received?: ReceivedOnDevice | null;
  readonly debug: boolean;
}

export class VerbsWire implements Above {
  readonly nodeId: string;
  readonly memory: NodeMemory;
  private readonly hub: NativeHub<VerbsEngine, VerbsOptions>;
  private readonly engine: VerbsEngine;
  private readonly book: PeerBook<VerbsPeer>;
  private readonly pairs: Pairs;
  private readonly inbox: NativeInbox;
  private readonly caretaker: Caretaker;
  private readonly counted: StatsReader;
  private readonly sendBreather = new Breather();
  private readonly recvBreather = new Breather(() => this.inbox.pump());
  /** Null until it is open. */
  private sockets: SocketsWire | null = null;
  private unread = 0;
  private nodeClosed = false;
  private closed: Promise<CloseReport> | null = null;

  private constructor(options: VerbsOptions, engine: VerbsEngine, memory: NodeMemory, events: EventQueue) {
    this.nodeId = options.nodeId;
    this.memory = memory;
    this.engine = engine;
    const hub = new NativeHub(options, engine, memory, events);
    this.hub = hub;
    this.book = new PeerBook(options.limits.connections, (id) => new VerbsPeer(id, hub));
    this.pairs = new Pairs(hub, this.book);
    this.inbox = new NativeInbox({
      handoff: engine.handoff,
      returns: engine.returns,
      memory,
      catchUp: () => this.pairs.catchUp(),
      flow: (number) => this.pairs.find(number),
      breather: this.recvBreather,
      beside: { take: () => this.sockets?.tryRecv() ?? undefined },
      unreleased: ({ peerId, held }) => hub.emit({ type: "unreleased", peer: peerId, envelopes: held }),
    });
    this.counted = new StatsReader(engine);
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
   * Puts a node that is open to use, listens, and begins to dial the configured peers. Takes over all parts, also where it rejects; then
   * nothing stays open. Rejects with `ConfigError` or `AddressError`.
   */
  static async open(options: VerbsOptions, parts: VerbsParts): Promise<VerbsWire> {
    const { engine, kind, device, received = null, debug } = parts;
    const events = new EventQueue(options.onEvent);
    const fault = (error: PoolError): void => events.emit({ type: "error", peer: null, error });
    const memory = new NodeMemory(engine, kind, device, {
      debug,
      setting: "ZAP_GPUDIRECT_REGION_BYTES",
      received,
      kindOwnsRegion: device !== null,
      onLeak: (leak) => fault(new PoolError(leakText(leak))),
      onFault: fault,
    });
    let wire: VerbsWire | null = null;
    try {
      wire = new VerbsWire(options, engine, memory, events);
      const given = {
        ...options.given,
        onEvent: (event: Parameters<typeof events.emit>[0]) => events.emit(event),
      };
      wire.sockets = await SocketsWire.open(given, null, wire);
      wire.round(performance.now());
      return wire;
    } catch (error) {
      wire?.caretaker.stop();
      // What went wrong first is what counts.
      await engine.close().catch(() => {});
      await memory.close().catch(() => {});
      throw error;
    }
  }

  get addresses(): readonly string[] {
    return this.sockets?.addresses ?? [];
  }

  // ---- what the sockets wire reports

  up(id: string, link: Link | null): void {
    const { hub, sockets } = this;
    if (hub.closing) return;
    const peer = this.book.of(id);
    peer.plain = link === null;
    peer.plainUp = link === null;
    if (link !== null) return this.pairs.begin(link);
    if (sockets !== null) peer.handOn((message) => sockets.send(id, message));
    peer.settleConnects(null);
  }

  down(id: string, link: Link | null, error: ZapError | null): void {
    if (this.nodeClosed) return;
    if (link !== null) return this.pairs.end(link, error);
    const peer = this.book.find(id);
    if (peer === undefined) return;
    peer.plainUp = false;
    this.book.forget(peer);
  }

  heard(link: Link, message: Uint8Array): void {
    if (!this.nodeClosed) this.pairs.heard(link, message);
  }

  queued(): void {
    this.inbox.pump();
  }

  // ---- what the node reports

  /** Something has come into a ring. */
  private look(): void {
    if (this.nodeClosed) return;
    this.pairs.catchUp();
    this.hub.outbox.turn();
    if (!this.hub.closing) return this.inbox.pump();
    // What comes after `close()` is thrown away; left where it is, it would keep the far end from finishing.
    do this.unread += this.inbox.discard();
    while (!this.inbox.arm());
  }

  /** What depends on time. */
  private round(now: number): void {
    if (this.nodeClosed) return;
    this.look();
    this.pairs.round(now);
    for (const peer of this.book.all()) {
      peer.expire(now);
      this.wish(peer);
      this.book.forget(peer);
    }
    this.book.trim();
  }

  /** Has the sockets wire dial a peer that messages wait for. */
  private wish(peer: VerbsPeer): void {
    const { sockets } = this;
    if (sockets === null || this.hub.closing) return;
    peer.address = sockets.addressOf(peer.id) ?? peer.address;
    sockets.want(peer.id, peer.waiting > 0 && peer.pair === null && !peer.plain);
  }

  // ---- the contract

  peers(): string[] {
    return this.book
      .all()
      .filter((peer) => peer.flow !== null || peer.plainUp)
      .map((peer) => peer.id);
  }

  send(id: string, message: Uint8Array, signal?: AbortSignal): Promise<void> {
    const { hub, sendBreather, sockets } = this;
    const fault = sendFault(message, hub);
    if (fault !== null) return Promise.reject(fault);
    if (hub.closing) return Promise.reject(new ClosedError("send: the transport is closed"));
    const peer = this.book.find(id);
    if (peer === undefined) return Promise.reject(unknownPeer(id));
    if (peer.plain && sockets !== null) return sockets.send(id, message, signal);
    if ((signal === undefined || !signal.aborted) && peer.accept(message)) {
      sendBreather.count(message.length);
      return sendBreather.pending ?? DONE;
    }
    if (peer.pair === null) peer.address = sockets?.addressOf(id) ?? peer.address;
    if (peer.pair === null && peer.address === null) return Promise.reject(peer.unreachable("now"));
    const pending = peer.enqueue(message, signal);
    if (peer.pair === null) this.wish(peer);
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
    if (peer.plain && this.sockets !== null) return this.sockets.trySend(id, message);
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

  async connect(address: string, signal?: AbortSignal): Promise<string> {
    const { hub, sockets } = this;
    if (hub.closing || sockets === null) throw new ClosedError("connect: the transport is closed");
    const since = performance.now();
    const id = await sockets.connect(address, signal);
    await this.reached(this.book.of(id), address, since, signal);
    return id;
  }

  /** Resolves when messages go to `peer`. */
  private reached(
    peer: VerbsPeer,
    address: string,
    since: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (peer.flow !== null || peer.plainUp) return DONE;
    if (this.hub.closing) return Promise.reject(new ClosedError("connect: the transport was closed"));
    if (signal?.aborted) return Promise.reject(new AbortedError("connect", signal.reason));
    if (peer.pair === null && peer.fault !== null && peer.failedAt >= since)
      return Promise.reject(peer.fault);
    return new Promise((resolve, reject) => {
      const { sendMillis } = this.hub.limits;
      const over = (error: ZapError | null): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
        peer.connectWaiters.delete(over);
        if (error === null) resolve();
        else reject(error);
      };
      const late = `${address} (${peer.id}) was not reached by RDMA within ${sendMillis} ms (limits.sendMillis)`;
      const timer = setTimeout(
        () => over(new PeerUnreachableError(late)),
        Math.max(1, since + sendMillis - performance.now()),
      );
      const onAbort = (): void => over(new AbortedError("connect", signal?.reason));
      signal?.addEventListener("abort", onAbort, { once: true });
      peer.connectWaiters.add(over);
    });
  }

  stats(): WireStats {
    const { hub, inbox, pairs } = this;
    const { outbox } = hub;
    const node = this.counted.read(!this.nodeClosed, pairs.portUp);
    // There is one, but for the moment in which this opens.
    const plain = this.sockets!.stats();
    return {
      messagesIn: node.messagesIn + plain.messagesIn,
      messagesOut: outbox.messagesOut + plain.messagesOut,
      bytesIn: node.bytesIn + plain.bytesIn,
      bytesOut: outbox.bytesOut + plain.bytesOut,
      queuedOutMessages: outbox.queuedMessages + plain.queuedOutMessages,
      queuedOutBytes: outbox.queuedBytes + plain.queuedOutBytes,
      queuedInMessages: (this.nodeClosed ? 0 : node.queuedMessages) + plain.queuedInMessages,
      queuedInBytes: (this.nodeClosed ? 0 : node.queuedBytes) + plain.queuedInBytes,
      waitingSends: this.book.all().reduce((sum, peer) => sum + peer.waiting, plain.waitingSends),
      waitingRecvs: inbox.waiting,
      connections: this.peers().length,
      handshakes: plain.handshakes + pairs.pending,
      bytesCopied: plain.bytesCopied + this.memory.copiedBytes,
      drops: { ...plain.drops, ...node.drops },
      undelivered: hub.undelivered + plain.undelivered,
      rdma: { ...node.rdma, bytesCopiedOut: outbox.bytesCopied },
    };
  }

  // ---- the end

  close(): Promise<CloseReport> {
    return (this.closed ??= this.shut());
  }

  private async shut(): Promise<CloseReport> {
    const { hub, engine, inbox, pairs, sockets } = this;
    const undeliveredBefore = hub.undelivered;
    hub.closing = true;
    inbox.close();
    for (const peer of this.book.all()) {
      peer.rejectWaiters();
      peer.settleConnects(new ClosedError("connect: the transport was closed"));
    }
    pairs.close();
    hub.outbox.beginEnd();
    this.look();
    await this.idle(hub.limits.closeMillis + CLOSE_GRACE_MILLIS);
    this.look();
    const plain = await sockets?.close();
    this.look();
    this.caretaker.stop();
    this.counted.read(true, pairs.portUp);
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
    return {
      undelivered: hub.undelivered - undeliveredBefore + (plain?.undelivered ?? 0),
      unread: this.unread + (plain?.unread ?? 0),
      buffers: left.buffers,
    };
  }

  private endPeers(): void {
    for (const peer of this.book.all()) {
      if (peer.flow === null) continue;
      peer.detach(null);
      this.hub.emit({ type: "disconnected", peer: peer.id, error: null });
    }
    this.book.clear();
    this.pairs.clear();
  }

  /** Resolves when no flow is left, or after `millis`. */
  private idle(millis: number): Promise<void> {
    if (this.pairs.isIdle) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, millis);
      this.pairs.onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
