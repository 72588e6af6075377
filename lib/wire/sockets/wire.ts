/** The node: what the parts of the sockets wire add up to. Listeners, peers, timers, close. */
import { randomUUID } from "node:crypto";
import { existsSync, lstatSync, unlinkSync } from "node:fs";
import {
  AbortedError,
  AddressError,
  ClosedError,
  ConfigError,
  ConnectionLostError,
  FrameTooLargeError,
  HandshakeError,
  MessageError,
  TimeoutError,
  UnknownPeerError,
  ZapError,
} from "../../errors/index.ts";
import { headerError, headerFault } from "../../message/index.ts";
import type { CloseReport, Envelope, WireOptions, WireStats } from "../contract.ts";
import { resolveLimits } from "../settings.ts";
import { formatAddress, formatHostPort, parseAddress } from "./address.ts";
import { causeText, Connection, type ConnectionOwner, type WireSocket } from "./connection.ts";
import { Dialler, type Dial, type SocketHandlers } from "./dialler.ts";
import { Greeter } from "./greeter.ts";
import { checkNodeId } from "./hello.ts";
import { Hub } from "./hub.ts";
import { Peer } from "./peer.ts";
import { certificateNames, chainFault, resolveTls, type BunTls } from "./tls.ts";

/** Kernel keepalive probes find hosts that vanished; ours find processes that hang. */
const TCP_KEEPALIVE_MILLIS = 30_000;
/** Queued bytes at which frames go to the kernel at once instead of waiting for company. */
const FLUSH_BYTES = 240 * 1024;
/** Rounds of the microtask queue without a new message after which what is queued goes out. */
const IDLE_ROUNDS = 4;

/** Resolved already: a `send` that was handed over at once allocates nothing. */
const DONE = Promise.resolve();

export class SocketsWire implements ConnectionOwner {
  readonly nodeId: string;
  addresses: readonly string[] = [];
  private readonly hub: Hub;
  private readonly book = new Map<string, Peer>();
  private readonly dialler: Dialler;
  private readonly greeter: Greeter;
  private readonly tls: BunTls | null;
  private readonly listeners: Bun.SocketListener<Connection>[] = [];
  /** Inbound connections in handshake, oldest first. */
  private readonly strangers = new Set<Connection>();
  private readonly timer: Timer;
  private closed: Promise<CloseReport> | null = null;
  private onIdle: (() => void) | null = null;

  /** Peers with messages that have not been written yet. */
  private readonly dirty: Peer[] = [];
  private pumping = false;
  private sends = 0;
  private sendsSeen = 0;
  private idleRounds = 0;

  /** Throws `ConfigError` or `AddressError` for options that cannot be used; opens no socket. Use `SocketsWire.open`. */
  private constructor(options: WireOptions) {
    const nodeId = options.nodeId ?? `zap-${randomUUID()}`;
    checkNodeId(nodeId, "nodeId");
    const limits = resolveLimits(options.limits);
    this.nodeId = nodeId;
    checkVersions(options.versions);
    const { onEvent = () => {} } = options;
    if (typeof onEvent !== "function") throw new ConfigError("onEvent: a function is needed");
    this.hub = new Hub(nodeId, limits, options.versions, onEvent);
    this.tls = options.tls === undefined ? null : resolveTls(options.tls, "listen");
    const dialTls = options.tls === undefined ? null : resolveTls(options.tls, "connect");
    this.dialler = new Dialler(this.hub, dialTls, this, this.handlers(false));
    const find = (id: string): Peer | undefined => this.book.get(id);
    const of = (id: string): Peer => this.peer(id);
    this.greeter = new Greeter(this.hub, this.dialler, { find, of }, this.allowList(options));
    for (const [id, address] of Object.entries(options.peers ?? {})) {
      checkNodeId(id, `peers[${JSON.stringify(id)}]`);
      if (id === nodeId) throw new ConfigError(`peers[${JSON.stringify(id)}]: this is the node's own id`);
      const peer = this.peer(id);
      peer.address = formatAddress(parseAddress(address));
      peer.configured = true;
    }
    const shortest = Math.min(
      limits.handshakeMillis,
      limits.sendMillis,
      limits.frameMillis,
      limits.keepaliveMillis,
    );
    const period = Math.min(shortest, limits.closeMillis, limits.reconnectMinMillis, limits.idleMillis) / 2;
    this.timer = setInterval(() => this.sweep(performance.now()), Math.max(5, Math.min(100, period)));
  }

  /** Opens the wire: listens where it is told to, and begins to dial the configured peers. */
  static async open(options: WireOptions): Promise<SocketsWire> {
    const wire = new SocketsWire(options);
    try {
      const { listen = [] } = options;
      const places = typeof listen === "string" ? [listen] : listen;
      if (!Array.isArray(places))
        throw new ConfigError("listen: an address or a list of addresses is needed");
      const bound: string[] = [];
      for (const place of places) bound.push(await wire.listen(place));
      wire.addresses = bound;
    } catch (error) {
      await wire.close();
      throw error;
    }
    wire.sweep(performance.now());
    return wire;
  }

  private allowList(options: WireOptions): ReadonlySet<string> | null {
    if (options.allow === undefined) return null;
    if (typeof options.allow !== "object" || options.allow === null || !(Symbol.iterator in options.allow)) {
      throw new ConfigError(`allow: a list of node ids is needed, got ${typeof options.allow}`);
    }
    const allow = new Set(options.allow);
    for (const id of allow) checkNodeId(id, "allow");
    for (const id of Object.keys(options.peers ?? {})) allow.add(id);
    return allow;
  }

  // ---- sockets

  private async listen(place: string): Promise<string> {
    const address = parseAddress(place, true);
    const common = {
      socket: this.handlers(true),
      allowHalfOpen: true,
      ...(this.tls === null ? {} : { tls: this.tls as unknown as Bun.TLSOptions }),
    };
    try {
      if (address.kind === "unix") {
        await removeStaleSocket(address.path);
        this.listeners.push(Bun.listen<Connection>({ ...common, unix: address.path }) as never);
        return formatAddress(address);
      }
      const listener = Bun.listen<Connection>({ ...common, hostname: address.host, port: address.port });
      this.listeners.push(listener as never);
      return formatHostPort(address.host, listener.port);
    } catch (cause) {
      if (cause instanceof ZapError) throw cause;
      const code = (cause as { code?: string }).code;
      const why = code === "EADDRINUSE" ? "the address is in use" : causeText(cause);
      throw new AddressError(`cannot listen on ${place}: ${why}`, { cause });
    }
  }

  private handlers(inbound: boolean): SocketHandlers {
    return {
      binaryType: "uint8array",
      open: (socket) => {
        socket.setKeepAlive(true, TCP_KEEPALIVE_MILLIS);
        if (inbound) this.accepted(socket);
        else this.dialled(socket);
      },
      handshake: (socket, _success, error) => this.secured(socket.data, socket, error),
      data: (socket, chunk) => socket.data?.feed(chunk as unknown as Uint8Array),
      drain: (socket) => socket.data?.flush(),
      end: (socket) => socket.data?.ended(),
      error: (socket, error) => socket.data?.gone(error),
      close: (socket, error) => socket.data?.gone(error ?? null),
    };
  }

  private accepted(socket: WireSocket): void {
    const { hub, strangers } = this;
    if (hub.closing) return void socket.terminate();
    const full = hub.connections.size >= hub.limits.connections;
    const [oldest] = strangers;
    if (full && oldest === undefined) {
      hub.drop("connections");
      socket.terminate();
      return;
    }
    if (full || strangers.size >= hub.limits.handshakes) {
      hub.drop("handshakes");
      oldest?.fail(
        new HandshakeError(`${oldest.address} was slow to say hello, and others came (limits.handshakes)`),
      );
    }
    const from =
      socket.remoteAddress === undefined ? "a unix socket" : `${socket.remoteAddress}:${socket.remotePort}`;
    const connection = new Connection(hub, this, true, from, this.tls !== null);
    connection.socket = socket;
    socket.data = connection;
    strangers.add(connection);
  }

  private dialled(socket: WireSocket): void {
    const connection = socket.data;
    connection.socket = socket;
    connection.bornAt = performance.now();
    this.dialler.opened(connection, socket);
    if (connection.state === "greeting") this.greeter.greet(connection);
  }

  private secured(connection: Connection | undefined, socket: WireSocket, error: Error | null): void {
    if (connection === undefined || connection.state !== "securing") return;
    const fault = chainFault(socket, !connection.inbound, error);
    if (fault !== null) {
      connection.fail(new HandshakeError(`${connection.address}: TLS: ${fault}`));
      return;
    }
    connection.certificateNames = certificateNames(socket);
    connection.state = "greeting";
    if (!connection.inbound) this.greeter.greet(connection);
  }

  // ---- what connections report

  onHello(connection: Connection, bytes: Uint8Array): void {
    this.strangers.delete(connection);
    this.greeter.hello(connection, bytes);
    if (connection.peer !== null) this.wake(connection.peer);
  }

  onDrained(connection: Connection): void {
    connection.peer?.drained(connection);
  }

  onEnded(connection: Connection): void {
    const { peer, state } = connection;
    if (state === "retiring") return void connection.flush();
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
    this.strangers.delete(connection);
    const dial = this.dialler.of(connection);
    if (dial !== undefined) {
      this.dialler.lost(dial, error);
      this.greeter.release(dial);
    }
    if (peer === null) {
      if (connection.inbound && !hub.closing) this.lostStranger(connection, error);
    } else this.lostConnection(connection, peer, error);
    if (peer !== null) this.forget(peer);
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
    if (peer.connection === connection) peer.detach(named);
    this.greeter.gone(connection);
    if (named !== null) hub.fault(peer.id, named);
    if (connection.kin && connection.sent > connection.acked) {
      peer.reportUndelivered(connection.sent - connection.acked, named);
    }
    if (peer.connection !== null) return;
    hub.emit({ type: "disconnected", peer: peer.id, error: named });
    const now = performance.now();
    // One that comes and goes is dialled ever more rarely; one that stayed a while is dialled at once.
    if (now - connection.bornAt >= hub.limits.reconnectMaxMillis) peer.attempts = 0;
    if (peer.address !== null) peer.nextDialAt = now + this.dialler.backoff(peer);
  }

  private peer(id: string): Peer {
    let peer = this.book.get(id);
    if (peer === undefined) {
      peer = new Peer(id, this.hub);
      this.book.set(id, peer);
    }
    return peer;
  }

  private forget(peer: Peer): void {
    if (peer.forgettable) this.book.delete(peer.id);
  }

  // ---- the contract

  peers(): string[] {
    return [...this.book.values()].filter((peer) => peer.connection !== null).map((peer) => peer.id);
  }

  send(id: string, message: Uint8Array, signal?: AbortSignal): Promise<void> {
    const { hub } = this;
    const fault = this.unsendable(message);
    if (fault !== null) return Promise.reject(fault);
    if (hub.closing) return Promise.reject(new ClosedError("send: the transport is closed"));
    const peer = this.book.get(id);
    if (peer === undefined) return Promise.reject(this.unknown(id));
    if ((signal === undefined || !signal.aborted) && peer.accept(message)) {
      this.touch(peer);
      return DONE;
    }
    if (peer.connection === null && peer.address === null) return Promise.reject(peer.unreachable("now"));
    const pending = peer.enqueue(message, signal);
    if (peer.connection === null) this.dialler.keepUp(peer, performance.now());
    return pending;
  }

  /** `send` where it needs no waiting, without a promise. False where it does; throws what `send` would reject with. */
  trySend(id: string, message: Uint8Array): boolean {
    const fault = this.unsendable(message);
    if (fault !== null) throw fault;
    if (this.hub.closing) throw new ClosedError("trySend: the transport is closed");
    const peer = this.book.get(id);
    if (peer === undefined) throw this.unknown(id);
    if (!peer.accept(message)) return false;
    this.touch(peer);
    return true;
  }

  private unsendable(message: Uint8Array): ZapError | null {
    const { limits, versions } = this.hub;
    if (!(message instanceof Uint8Array)) {
      return new MessageError("ERR_ZAP_MESSAGE_SHORT", "send: a message is a Uint8Array");
    }
    const fault = headerFault(message, 0, message.length, versions);
    if (fault !== 0) return headerError(fault, message, 0, message.length, versions);
    return message.length > limits.frameBytes ? this.tooLarge(message) : null;
  }

  private tooLarge(message: Uint8Array): FrameTooLargeError {
    const { frameBytes } = this.hub.limits;
    return new FrameTooLargeError(
      `send: a message of ${message.length} bytes; limits.frameBytes is ${frameBytes}`,
    );
  }

  private unknown(id: string): UnknownPeerError {
    const text = `no peer ${JSON.stringify(id)}: name its address in peers, connect(address), or let it dial in`;
    return new UnknownPeerError(text);
  }

  /** Sees to it that what was queued goes out: now if it is much, else when the caller pauses. */
  private touch(peer: Peer): void {
    if (peer.outbox.bytes >= FLUSH_BYTES) return peer.flush();
    this.sends++;
    if (!peer.dirty) {
      peer.dirty = true;
      this.dirty.push(peer);
    }
    if (this.pumping) return;
    this.pumping = true;
    this.sendsSeen = this.sends;
    this.idleRounds = 0;
    queueMicrotask(this.pump);
  }

  /** Runs behind the caller's own microtasks: as long as these bring new messages, it lets them gather. */
  private readonly pump = (): void => {
    if (this.sends !== this.sendsSeen) {
      this.sendsSeen = this.sends;
      this.idleRounds = 0;
      queueMicrotask(this.pump);
    } else if (++this.idleRounds < IDLE_ROUNDS) queueMicrotask(this.pump);
    else {
      this.pumping = false;
      for (const peer of this.dirty) {
        peer.dirty = false;
        peer.flush();
      }
      this.dirty.length = 0;
    }
  };

  recv(signal?: AbortSignal): Promise<Envelope> {
    return this.hub.inbox.recv(signal);
  }

  /** `recv` with callbacks. */
  wait(resolve: (envelope: Envelope) => void, reject: (error: Error) => void): void {
    this.hub.inbox.wait(resolve, reject);
  }

  /** The next message if one is queued, without a promise. */
  tryRecv(): Envelope | null {
    return this.hub.inbox.take() ?? null;
  }

  get isClosed(): boolean {
    return this.hub.closing;
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
      const timer = setTimeout(() => giveUp(this.dialler.timeout(target, sendMillis)), sendMillis);
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
    const peers = [...this.book.values()];
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
      drops: { ...hub.drops },
      undelivered: hub.undelivered,
    };
  }

  // ---- time

  /** Gives a peer that has just become reachable its waiting messages. */
  private wake(peer: Peer): void {
    peer.admit();
    peer.flush();
  }

  private sweep(now: number): void {
    const { hub } = this;
    for (const connection of [...hub.connections]) this.check(connection, now);
    for (const peer of [...this.book.values()]) {
      peer.expire(now);
      this.dialler.keepUp(peer, now);
      this.forget(peer);
    }
  }

  private check(connection: Connection, now: number): void {
    const { limits } = this.hub;
    const { state, address } = connection;
    if (connection.socket === null) return;
    if (state === "securing" || state === "greeting") {
      if (now - connection.bornAt < limits.handshakeMillis) return;
      const text = `${address} did not finish the handshake within ${limits.handshakeMillis} ms (limits.handshakeMillis)`;
      connection.fail(new HandshakeError(text));
    } else if (state === "retiring") {
      if (now - connection.retiredAt < limits.closeMillis) return;
      const text = `${address} did not hang up within ${limits.closeMillis} ms (limits.closeMillis)`;
      connection.fail(new TimeoutError(text));
    } else this.checkOpen(connection, now);
  }

  private checkOpen(connection: Connection, now: number): void {
    const { limits } = this.hub;
    const silentMax = connection.kin ? 3 * limits.keepaliveMillis : limits.idleMillis;
    if (connection.silence(now) >= silentMax) {
      connection.fail(new ConnectionLostError(`silent for ${silentMax} ms`));
    } else if (connection.frameAge(now) >= limits.frameMillis) {
      const text = `a frame was not complete after ${limits.frameMillis} ms (limits.frameMillis)`;
      connection.fail(new ConnectionLostError(text));
    } else {
      connection.acknowledge();
      connection.nextLease();
      if (now - connection.wroteAt >= limits.keepaliveMillis) connection.keepAlive();
    }
  }

  // ---- the end

  close(): Promise<CloseReport> {
    return (this.closed ??= this.shut());
  }

  private async shut(): Promise<CloseReport> {
    const { hub } = this;
    const undeliveredBefore = hub.undelivered;
    hub.closing = true;
    for (const listener of this.listeners) listener.stop(false);
    this.dialler.close(new ClosedError("connect: the transport was closed"));
    const unread = hub.inbox.close();
    for (const peer of this.book.values()) {
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
    clearInterval(this.timer);
    for (const peer of this.book.values()) peer.lose(new ClosedError("the transport was closed"));
    this.book.clear();
    return { undelivered: hub.undelivered - undeliveredBefore, unread: unread + hub.discarded };
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

function checkVersions(versions: readonly number[] | undefined): void {
  if (versions === undefined) return;
  const valid = (version: unknown): boolean =>
    Number.isInteger(version) && Number(version) > 0 && Number(version) < 65_536;
  if (!Array.isArray(versions) || versions.length === 0 || !versions.every(valid)) {
    throw new ConfigError("versions: a list of message versions is needed, each 1 to 65535");
  }
}

function withPeer(error: ZapError, peer: string): ZapError {
  const named = `peer ${peer}`;
  if (!error.message.startsWith(named)) error.message = `${named}: ${error.message}`;
  return error;
}

/** A socket file that nobody listens on any more is in the way of a new listener. */
async function removeStaleSocket(path: string): Promise<void> {
  if (!existsSync(path) || !lstatSync(path).isSocket()) return;
  const ignore = (): void => {};
  try {
    const socket = await Bun.connect({ unix: path, socket: { data: ignore, open: ignore } });
    socket.terminate();
  } catch (error) {
    if ((error as { code?: string }).code === "ECONNREFUSED") unlinkSync(path);
  }
}
