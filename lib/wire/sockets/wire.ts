/** The node: what the parts of the sockets wire add up to. */
import {
  AbortedError,
  ClosedError,
  ConnectionLostError,
  HandshakeError,
  TimeoutError,
  ZapError,
} from "../../errors/index.ts";
import type { CloseReport, Envelope, WireOptions, WireStats } from "../contract.ts";
import type { Above } from "./above.ts";
import { Acceptor } from "./acceptor.ts";
import { sendFault, unknownPeer } from "../common/sendable.ts";
import { formatAddress, parseAddress } from "../common/address.ts";
import { PeerBook } from "../common/book.ts";
import { Caretaker } from "./caretaker.ts";
import { Coalescer } from "./coalescer.ts";
import type { Connection, ConnectionOwner } from "./connection.ts";
import { Dialler, type Dial } from "./dialler.ts";
import { Greeter } from "./greeter.ts";
import { Hub } from "./hub.ts";
import { Outbox } from "./outbox.ts";
import { EnvelopeIterator } from "../common/iterator.ts";
import { resolveOptions, type ResolvedOptions } from "./options.ts";
import { Peer } from "./peer.ts";
import type { SlabMemory } from "./slabs/index.ts";

/** Resolved already: a `send` that was handed over at once allocates nothing. */
const DONE = Promise.resolve();

export class SocketsWire implements ConnectionOwner {
  readonly nodeId: string;
  addresses: readonly string[] = [];
  private readonly hub: Hub;
  private readonly book: PeerBook<Peer>;
  private readonly acceptor: Acceptor;
  private readonly dialler: Dialler;
  private readonly greeter: Greeter;
  private readonly caretaker: Caretaker;
  private readonly coalescer = new Coalescer();
  private closed: Promise<CloseReport> | null = null;
  private onIdle: (() => void) | null = null;

  private constructor(options: ResolvedOptions, memory: SlabMemory | null, above: Above | null) {
    const { nodeId, limits, versions, onEvent, allow, tls } = options;
    this.nodeId = nodeId;
    this.hub = new Hub(nodeId, limits, versions, onEvent, memory, above);
    this.book = new PeerBook(limits.connections, (id) => new Peer(id, this.hub));
    this.acceptor = new Acceptor(this.hub, this, tls?.listen ?? null);
    this.dialler = new Dialler(this.hub, this, tls?.connect ?? null, (connection) =>
      this.greeter.greet(connection),
    );
    this.greeter = new Greeter(this.hub, this.dialler, this.book, allow);
    for (const [id, address] of options.peers) {
      const peer = this.book.of(id);
      peer.address = address;
      peer.configured = true;
    }
    this.caretaker = new Caretaker(this.hub, this.book, this.dialler, this.greeter);
  }

  /**
   * Opens the wire: listens where it is told to, and begins to dial the configured peers. Rejects with `ConfigError` or
   * `AddressError`, and then leaves nothing open. Messages are received into `memory`, which is closed with the wire; without it
   * onto the heap. `above` hears of all connections, also before this has resolved.
   */
  static async open(
    options: WireOptions,
    memory: SlabMemory | null = null,
    above: Above | null = null,
  ): Promise<SocketsWire> {
    const resolved = resolveOptions(options);
    const wire = new SocketsWire(resolved, memory, above);
    try {
      const bound: string[] = [];
      for (const place of resolved.listen) bound.push(await wire.acceptor.listen(place));
      wire.addresses = bound;
    } catch (error) {
      await wire.close();
      throw error;
    }
    wire.caretaker.round();
    return wire;
  }

  // ---- what connections report

  onHello(connection: Connection, bytes: Uint8Array): void {
    this.acceptor.known(connection);
    this.greeter.hello(connection, bytes);
  }

  onDrained(connection: Connection): void {
    connection.peer?.drained(connection);
  }

  onEnded(connection: Connection): void {
    const { peer, state } = connection;
    if (state === "retiring") {
      connection.lastWords();
      connection.flush();
      return;
    }
    if (state !== "open" || peer === null) {
      connection.end();
    } else if (connection.midFrame) {
      connection.fail(new ConnectionLostError(`peer ${peer.id} hung up in the middle of a frame`));
    } else if (peer.connection === connection) peer.retireConnection();
    else connection.retire(null);
  }

  onGone(connection: Connection, error: ZapError | null): void {
    const { hub } = this;
    const { peer } = connection;
    this.acceptor.known(connection);
    const dial = this.dialler.of(connection);
    if (dial !== undefined) {
      this.dialler.lost(dial, error);
      this.greeter.release(dial);
    }
    if (peer === null) {
      if (connection.inbound && !hub.closing) this.lostStranger(connection, error);
    } else this.lostConnection(connection, peer, error);
    if (peer !== null) this.book.forget(peer);
    if (hub.connections.size === 0) this.onIdle?.();
  }

  private lostStranger(connection: Connection, error: ZapError | null): void {
    // Port scanners, health checks, and nodes that found us connected already come and go without a word.
    if (!connection.heard && !(error instanceof HandshakeError)) return this.hub.drop("silent");
    if (connection.turnedAway) return;
    this.hub.drop("handshake");
    const text = `${connection.address} hung up before it said hello`;
    this.hub.fault(null, error ?? new HandshakeError(text));
  }

  private lostConnection(connection: Connection, peer: Peer, error: ZapError | null): void {
    const { hub } = this;
    const named = error === null ? null : withPeer(error, peer.id);
    // The wire above says what became of its links.
    const toldAbove = connection.link !== null && peer.connection === connection;
    if (peer.connection === connection) peer.detach(named);
    this.greeter.gone(connection);
    if (named !== null && !toldAbove) hub.fault(peer.id, named);
    if (connection.kin && connection.unconfirmed > 0) peer.reportUndelivered(connection.unconfirmed, named);
    if (peer.connection !== null) return;
    if (connection.link === null) hub.emit({ type: "disconnected", peer: peer.id, error: named });
    const now = performance.now();
    // One that comes and goes is dialled ever more rarely; one that stayed a while is dialled at once.
    if (now - connection.bornAt >= hub.limits.reconnectMaxMillis) peer.attempts = 0;
    if (peer.address !== null) this.dialler.pause(peer);
  }

  // ---- what the wire above asks

  /** Where `peer` can be dialled, or null. */
  addressOf(peer: string): string | null {
    return this.book.find(peer)?.address ?? null;
  }

  /** Dials `peer` as if a message waited for it, until it is wanted no more. */
  want(id: string, wanted: boolean): void {
    const peer = this.book.find(id);
    if (peer === undefined || peer.address === null) return;
    peer.wantedAbove = wanted;
    if (wanted) this.dialler.keepUp(peer, performance.now());
  }

  // ---- the contract

  peers(): string[] {
    return this.book
      .all()
      .filter((peer) => peer.connection !== null)
      .map((peer) => peer.id);
  }

  send(id: string, message: Uint8Array, signal?: AbortSignal): Promise<void> {
    const { hub } = this;
    const fault = sendFault(message, this.hub);
    if (fault !== null) return Promise.reject(fault);
    if (hub.closing) return Promise.reject(new ClosedError("send: the transport is closed"));
    const peer = this.book.find(id);
    if (peer === undefined) return Promise.reject(unknownPeer(id));
    if ((signal === undefined || !signal.aborted) && peer.accept(message)) {
      this.coalescer.touch(peer);
      return this.coalescer.breather ?? DONE;
    }
    if (peer.connection === null && peer.address === null) return Promise.reject(peer.unreachable("now"));
    const pending = peer.enqueue(message, signal);
    if (peer.connection === null) this.dialler.keepUp(peer, performance.now());
    if (!Outbox.isDirect(message)) return pending;
    this.coalescer.flushed();
    const { breather } = this.coalescer;
    return breather === null ? pending : pending.then(() => breather);
  }

  /** `send` where it needs no waiting, without a promise. False where it does; throws what `send` would reject with. */
  trySend(id: string, message: Uint8Array): boolean {
    const fault = sendFault(message, this.hub);
    if (fault !== null) throw fault;
    if (this.hub.closing) throw new ClosedError("trySend: the transport is closed");
    const peer = this.book.find(id);
    if (peer === undefined) throw unknownPeer(id);
    if (this.coalescer.breather !== null || !peer.accept(message)) return false;
    this.coalescer.touch(peer);
    return true;
  }

  recv(signal?: AbortSignal): Promise<Envelope> {
    return this.hub.inbox.recv(signal);
  }

  iterate(): AsyncIterator<Envelope> {
    return new EnvelopeIterator(this.hub.inbox);
  }

  /** The next message if one is queued, without a promise. */
  tryRecv(): Envelope | null {
    return this.hub.inbox.take() ?? null;
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
      let dial: Dial | null = null;
      const { sendMillis } = hub.limits;
      const giveUp = (error: ZapError): void => {
        if (dial !== null) {
          this.dialler.abandon(dial, error);
          this.greeter.release(dial);
        }
      };
      const onAbort = (): void => giveUp(new AbortedError("connect", signal?.reason));
      const timer = setTimeout(
        () => giveUp(this.dialler.timeout(target, sendMillis, "sendMillis")),
        sendMillis,
      );
      signal?.addEventListener("abort", onAbort, { once: true });
      dial = this.dialler.dial(target, null, (outcome) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
        if (outcome instanceof ZapError) reject(outcome);
        else resolve(outcome.id);
      });
    });
  }

  stats(): WireStats {
    const { hub } = this;
    const peers = this.book.all();
    const sum = (of: (peer: Peer) => number): number => peers.reduce((total, peer) => total + of(peer), 0);
    const connections = sum((peer) => (peer.connection === null ? 0 : 1));
    return {
      messagesIn: hub.messagesIn,
      messagesOut: hub.messagesOut,
      bytesIn: hub.bytesIn,
      bytesOut: hub.bytesOut,
      queuedOutMessages: sum((peer) => peer.outbox.messages),
      queuedOutBytes: hub.pool.queuedBytes,
      queuedInMessages: hub.inbox.queuedMessages,
      queuedInBytes: hub.inbox.queuedBytes,
      waitingSends: sum((peer) => peer.waiting),
      waitingRecvs: hub.inbox.waiting,
      connections,
      handshakes: [...hub.connections].filter((one) => one.state === "greeting" || one.state === "securing")
        .length,
      bytesCopied: hub.bytesCopied + copiedByIntakes(hub),
      drops: { ...hub.drops },
      undelivered: hub.undelivered,
    };
  }

  // ---- the end

  close(): Promise<CloseReport> {
    return (this.closed ??= this.shut());
  }

  private async shut(): Promise<CloseReport> {
    const { hub } = this;
    const undeliveredBefore = hub.undelivered;
    hub.closing = true;
    this.acceptor.stop();
    this.dialler.close(new ClosedError("connect: the transport was closed"));
    const unread = hub.inbox.close();
    for (const peer of this.book.all()) {
      peer.rejectWaiters();
      if (peer.connection === null)
        peer.lose(new ClosedError("the transport was closed before the peer was reached"));
    }
    for (const connection of [...hub.connections]) {
      if (connection.state !== "open") {
        if (connection.state !== "retiring") connection.end();
        continue;
      }
      const { peer } = connection;
      connection.unpauseAll();
      if (peer === null || peer.connection !== connection || !peer.ready) connection.retire(null);
      else peer.flush();
      if (peer !== null && peer.outbox.bytes === 0) connection.retire(null);
    }
    await this.idle(hub.limits.closeMillis);
    for (const connection of [...hub.connections]) {
      const text = `peer ${connection.peerId} did not take everything within ${hub.limits.closeMillis} ms`;
      connection.fail(new TimeoutError(`${text} (limits.closeMillis)`));
    }
    this.caretaker.stop();
    this.greeter.stop();
    for (const peer of this.book.all()) peer.lose(new ClosedError("the transport was closed"));
    this.book.clear();
    hub.memory?.close();
    return { undelivered: hub.undelivered - undeliveredBefore, unread: unread + hub.discarded, buffers: 0 };
  }

  /** Resolves when no connection is left, or after `millis`. */
  private idle(millis: number): Promise<void> {
    if (this.hub.connections.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, millis);
      this.onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** What intakes have copied: those that are gone have told the memory, the others are asked. */
function copiedByIntakes(hub: Hub): number {
  let bytes = hub.memory?.copiedBytes ?? 0;
  for (const connection of hub.connections) bytes += connection.copiedByIntake;
  return bytes;
}

function withPeer(error: ZapError, peer: string): ZapError {
  const named = `peer ${peer}`;
  if (!error.message.startsWith(named)) error.message = `${named}: ${error.message}`;
  return error;
}
