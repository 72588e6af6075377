/**
 * One socket and its state. It reads frames, keeps count, and writes what it is given; what a hello means and which
 * connection a peer uses is decided elsewhere (`greeter.ts`).
 */
import type { Socket } from "bun";
import { ConnectionLostError, HandshakeError, type ZapError } from "../../errors/index.ts";
import { heapArena } from "../../memory/index.ts";
import type { HeaderFaultName } from "../../message/index.ts";
import { FrameReader, type FrameSink } from "./frames.ts";
import { decodeAck, encodeAck } from "./hello.ts";
import { PAUSE_HELD, PAUSE_PEER_QUEUE, PAUSE_RESERVE, PAUSE_TOTAL_QUEUE, type Hub } from "./hub.ts";
import { Batch, type BatchSource, type Lease } from "./inbox.ts";
import type { Peer } from "./peer.ts";

/** An acknowledgement goes out at the latest after this much was received (and with every sweep that finds news). */
const ACK_EVERY_BYTES = 16 * 1024 * 1024;

/** What a queued batch costs beside its bytes: counting it keeps a flood of tiny packets within the limits. */
const BATCH_OVERHEAD_BYTES = 256;

/**
 * securing: TLS is being set up; greeting: hellos are being exchanged; open: messages flow; retiring: we say no more than
 * what has begun, half-close, and read to the end; closed.
 */
export type ConnectionState = "securing" | "greeting" | "open" | "retiring" | "closed";

/** What a connection tells the node. */
export interface ConnectionOwner {
  onHello(connection: Connection, bytes: Uint8Array): void;
  onEnded(connection: Connection): void;
  onGone(connection: Connection, error: ZapError | null): void;
  onDrained(connection: Connection): void;
}

export type WireSocket = Socket<Connection>;

export class Connection implements FrameSink, BatchSource {
  readonly hub: Hub;
  readonly owner: ConnectionOwner;
  readonly inbound: boolean;
  readonly address: string;
  socket: WireSocket | null = null;
  state: ConnectionState;
  peer: Peer | null = null;
  peerId = "";
  /** The far end is this library: it understands control frames. */
  kin = false;
  /** The names in the peer's certificate; null on plaintext connections. */
  certificateNames: ReadonlySet<string> | null = null;
  /** What went wrong first; reported when the socket is gone. */
  error: ZapError | null = null;
  remoteEnded = false;
  /** Something has come from the far end. */
  heard = false;
  /** A duplicate that we ended ourselves. */
  turnedAway = false;

  /** Milliseconds of `performance.now()`. */
  bornAt = performance.now();
  readAt = this.bornAt;
  wroteAt = this.bornAt;
  /** When we began to leave. */
  retiredAt = 0;
  /** When the frame being received began, moved on by the time in which we did not read; 0 between frames. */
  frameAt = 0;
  private pausedAt = 0;

  /** Messages wholly with the kernel, and how many of them the far end has acknowledged. */
  sent = 0;
  acked = 0;
  /** Messages taken into the receive queue, and how many of them we have acknowledged. */
  received = 0;
  private ackedBack = 0;
  private ackQueued = false;
  private bytesSinceAck = 0;

  queuedBytes = 0;
  private readonly reader: FrameReader;
  private pauses = 0;
  private readonly waiting: Uint8Array[] = [];
  private chargedChunk: Uint8Array | null = null;
  private lease: Lease | null = null;

  /** Bytes that go out before anything else: hellos, last words. */
  private raw: Uint8Array | null = null;
  /** Nothing will be said any more but what is queued. */
  finWanted = false;
  private finSent = false;

  constructor(hub: Hub, owner: ConnectionOwner, inbound: boolean, address: string, secure: boolean) {
    this.hub = hub;
    this.owner = owner;
    this.inbound = inbound;
    this.address = address;
    this.state = secure ? "securing" : "greeting";
    this.reader = new FrameReader(this, hub.limits.frameBytes, hub.versions);
  }

  /** The kernel has connected: from now on it counts. */
  opened(socket: WireSocket): void {
    this.socket = socket;
    this.bornAt = performance.now();
    this.readAt = this.bornAt;
    this.wroteAt = this.bornAt;
    this.hub.connections.add(this);
  }

  readonly onSent = (messages: number, bytes: number): void => {
    this.sent += messages;
    this.hub.messagesOut += messages;
    this.hub.bytesOut += bytes;
  };

  // ---- receiving

  feed(chunk: Uint8Array): void {
    this.readAt = performance.now();
    this.heard = true;
    if (this.state === "closed") return;
    if (this.state === "securing") {
      return this.fail(new HandshakeError(`${this.address}: data came before TLS was up`));
    }
    if (this.pauses !== 0 || this.waiting.length > 0) this.waiting.push(chunk);
    else this.read(chunk);
  }

  private read(chunk: Uint8Array): void {
    const { reader } = this;
    const framesBefore = reader.frames;
    const consumed = reader.consume(chunk);
    this.chargedChunk = null;
    if (reader.midFrame) {
      if (this.frameAt === 0 || reader.frames !== framesBefore) this.frameAt = this.readAt;
    } else this.frameAt = 0;
    if (consumed < chunk.length && !this.isClosed()) this.waiting.unshift(chunk.subarray(consumed));
    if (this.queuedBytes >= this.hub.limits.recvQueueBytes && !this.hub.closing) this.pause(PAUSE_PEER_QUEUE);
    this.hub.checkTotal(this);
    if (this.bytesSinceAck >= ACK_EVERY_BYTES) this.acknowledge();
  }

  private isClosed(): boolean {
    return this.state === "closed";
  }

  get stopped(): boolean {
    return (this.pauses & (PAUSE_HELD | PAUSE_TOTAL_QUEUE)) !== 0 || this.state === "closed";
  }

  hello(bytes: Uint8Array): void {
    this.owner.onHello(this, bytes);
  }

  batch(chunk: Uint8Array, at: number, messages: number, bytes: number): void {
    // The envelopes keep all of the chunk alive: its first batch counts for all of it.
    const charge = (chunk === this.chargedChunk ? 0 : chunk.length) + BATCH_OVERHEAD_BYTES;
    this.chargedChunk = chunk;
    this.deliver(new Batch(this, chunk, at, messages, charge, this.currentLease(), null), messages, bytes);
  }

  assembled(message: Uint8Array): void {
    this.hub.unreserve(this.reader.reserved);
    const { length } = message;
    const charge = length + BATCH_OVERHEAD_BYTES;
    this.deliver(new Batch(this, message, 0, 1, charge, this.currentLease(), heapArena), 1, length);
  }

  private currentLease(): Lease {
    return (this.lease ??= this.hub.inbox.lease(this.peerId));
  }

  /** The envelopes made from now on are watched apart from those before. */
  nextLease(): void {
    this.lease = null;
  }

  private deliver(batch: Batch, messages: number, bytes: number): void {
    const { hub } = this;
    if (this.peer === null) {
      // A duplicate that was turned away goes on talking.
      hub.drop("stranger");
      batch.discard();
      return;
    }
    hub.messagesIn += messages;
    hub.bytesIn += bytes;
    if (hub.closing) {
      // Nobody can take them any more; not acknowledged, so that their sender learns of it.
      hub.discarded += messages;
      batch.discard();
      return;
    }
    this.received += messages;
    this.bytesSinceAck += bytes;
    hub.inbox.push(batch);
  }

  memory(bytes: number): Uint8Array {
    return heapArena.take(bytes);
  }

  recycle(memory: Uint8Array): void {
    heapArena.give(memory);
  }

  control(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const messages = this.kin ? decodeAck(bytes) : null;
    if (messages === null) this.hub.drop("short");
    else if (messages >= this.acked && messages <= this.sent + this.begun()) this.acked = messages;
    else this.hub.drop("ack");
  }

  /** Messages that may be out although they are not counted as sent: a block counts when all of it is. */
  private begun(): number {
    return this.peer?.connection === this ? this.peer.outbox.messages : 0;
  }

  /** Messages that went out and that the far end has not confirmed. Call it after the outbox was rewound. */
  get unconfirmed(): number {
    return Math.max(0, this.sent - this.acked);
  }

  dropped(reason: HeaderFaultName): void {
    this.hub.drop(reason);
  }

  fatal(error: ZapError): void {
    if (this.peer === null) error.message = `${this.address}: ${error.message}`;
    this.fail(error);
  }

  reserve(bytes: number): boolean {
    return this.hub.reserve(this, bytes);
  }

  taken(): void {
    if (this.queuedBytes <= this.hub.limits.recvQueueBytes / 2) this.unpause(PAUSE_PEER_QUEUE);
    this.hub.taken();
  }

  pause(reason: number): void {
    if (this.pauses === 0) {
      this.pausedAt = performance.now();
      this.socket?.pause();
    }
    this.pauses |= reason;
  }

  unpause(reason: number): void {
    if ((this.pauses & reason) === 0) return;
    this.pauses &= ~reason;
    if (this.pauses !== 0) return;
    const now = performance.now();
    if (this.frameAt !== 0) this.frameAt += now - this.pausedAt;
    this.readAt = now;
    while (this.pauses === 0 && this.waiting.length > 0) {
      const chunk = this.waiting.shift();
      if (chunk !== undefined) this.read(chunk);
    }
    if (this.paused || this.isClosed()) return;
    this.socket?.resume();
    if (this.remoteEnded) this.owner.onEnded(this);
  }

  unpauseAll(): void {
    this.unpause(PAUSE_HELD | PAUSE_PEER_QUEUE | PAUSE_TOTAL_QUEUE | PAUSE_RESERVE);
  }

  get paused(): boolean {
    return this.pauses !== 0;
  }

  get midFrame(): boolean {
    return this.reader.midFrame;
  }

  /** The far end has half-closed. What it said before is read first. */
  ended(): void {
    this.remoteEnded = true;
    if (this.waiting.length === 0) this.owner.onEnded(this);
  }

  // ---- sending

  /** Queues bytes ahead of everything else. */
  say(bytes: Uint8Array): void {
    if (this.raw === null) this.raw = bytes;
    else {
      const both = new Uint8Array(this.raw.length + bytes.length);
      both.set(this.raw);
      both.set(bytes, this.raw.length);
      this.raw = both;
    }
    this.flush();
  }

  /** Writes what there is and the socket takes. */
  flush(): void {
    const { socket, state } = this;
    if (socket === null || state === "closed" || state === "securing") return;
    if (this.raw !== null) {
      const written = socket.write(this.raw);
      if (written < 0) return;
      this.wroteAt = performance.now();
      if (written < this.raw.length) {
        this.raw = this.raw.subarray(written);
        return;
      }
      this.raw = null;
    }
    if (this.finWanted) {
      if (!this.finSent) socket.shutdown();
      else if (this.remoteEnded) socket.end();
      this.finSent = true;
      return;
    }
    if (state === "open") this.owner.onDrained(this);
  }

  /** True when nothing that was said ahead of the messages is still on its way. */
  get clear(): boolean {
    return this.raw === null && this.socket !== null;
  }

  /** Tells the far end how much we have taken, if there is news and it understands. */
  acknowledge(): void {
    const { peer } = this;
    if (!this.kin || this.ackQueued || this.received === this.ackedBack) return;
    if (this.state !== "open" || peer === null || peer.connection !== this) return;
    this.ackQueued = true;
    this.noteAck();
    const settled = (): void => {
      this.ackQueued = false;
    };
    peer.outbox.appendControl(encodeAck(this.received), { done: settled, failed: settled });
    peer.flush();
  }

  private noteAck(): void {
    this.ackedBack = this.received;
    this.bytesSinceAck = 0;
  }

  /** A frame of no meaning, so that the far end sees us alive. */
  keepAlive(): void {
    // On a connection that makes way, nothing has been said and nothing is on its way: the far end must still see us read.
    if (this.state === "retiring" && !this.finWanted && this.raw === null) return this.say(new Uint8Array(4));
    if (this.state !== "open" || this.peer?.connection !== this || this.peer.outbox.bytes > 0) return;
    const ignore = (): void => {};
    this.peer.outbox.appendControl(new Uint8Array(4), { done: ignore, failed: ignore });
    this.peer.flush();
  }

  /** Says the last words (the rest of a begun frame, the last acknowledgement), half-closes, and reads on to the end. */
  retire(rest: Uint8Array | null): void {
    if (this.state === "retiring" || this.state === "closed") return;
    this.state = "retiring";
    this.retiredAt = performance.now();
    if (rest !== null) this.say(rest);
    this.lastWords();
  }

  /**
   * Retires a connection on which we have said nothing and the far end may have: it is read to its end first, so that the last
   * acknowledgement counts everything.
   */
  retireAfterReading(): void {
    if (this.state === "retiring" || this.state === "closed") return;
    this.state = "retiring";
    this.retiredAt = performance.now();
    if (this.remoteEnded) this.lastWords();
    else this.unpause(PAUSE_HELD);
  }

  /** What a retiring connection still has to say, when there is nothing more to wait for. */
  lastWords(): void {
    if (this.finWanted || this.state !== "retiring") return;
    if (this.kin) {
      this.noteAck();
      this.say(encodeAck(this.received));
    }
    // Only now: a flush with this set half-closes as soon as it has written what was said.
    this.finWanted = true;
    this.flush();
    // What still comes after `close()` is thrown away, so no queue can be in its way.
    if (this.hub.closing) this.unpauseAll();
    else this.unpause(PAUSE_HELD);
  }

  /** Says one thing, half-closes, and lets the far end hang up. */
  farewell(bytes: Uint8Array): void {
    this.state = "retiring";
    this.retiredAt = performance.now();
    this.finWanted = true;
    this.say(bytes);
  }

  /** Ends the connection at once, with `error` as the reason. */
  fail(error: ZapError): void {
    if (this.state === "closed") return;
    this.error ??= error;
    this.end();
  }

  /** Ends the connection at once. What the far end has not taken is lost. */
  end(): void {
    if (this.state === "closed") return;
    this.socket?.terminate();
    // `close` may come later or, from inside a callback, never: either way this is over.
    this.gone(null);
  }

  /** Ends a connection on which we have said nothing, without alarming the far end. */
  leave(): void {
    this.socket?.end();
    this.gone(null);
  }

  /** The socket reports an error: it ends now. */
  broken(cause: Error): void {
    if (this.state === "closed") return;
    this.socket?.terminate();
    this.gone(cause);
  }

  /** The socket is no more. */
  gone(cause: Error | null): void {
    if (this.state === "closed") return;
    const { midFrame } = this;
    this.hub.unreserve(this.reader.reserved);
    this.reader.close();
    this.lease = null;
    const before = this.state;
    this.state = "closed";
    this.waiting.length = 0;
    this.raw = null;
    this.hub.forget(this);
    if (this.error === null && before !== "securing" && before !== "greeting") {
      if (cause !== null)
        this.error = new ConnectionLostError(`the connection broke: ${causeText(cause)}`, { cause });
      else if (midFrame)
        this.error = new ConnectionLostError("the connection ended in the middle of a frame");
    }
    this.owner.onGone(this, this.error ?? lostBeforeHello(cause));
  }

  /** Time that does not count against the far end. */
  excuse(millis: number): void {
    this.bornAt += millis;
    this.readAt += millis;
    if (this.frameAt !== 0) this.frameAt += millis;
  }

  /** Milliseconds of silence that were not our own doing. */
  silence(now: number): number {
    return this.pauses === 0 ? now - this.readAt : 0;
  }

  /** Milliseconds that the frame being received has taken, our own pauses left out. */
  frameAge(now: number): number {
    if (this.frameAt === 0 || this.pauses !== 0) return 0;
    return now - this.frameAt;
  }
}

function lostBeforeHello(cause: Error | null): ZapError | null {
  return cause === null
    ? null
    : new ConnectionLostError(`the connection broke: ${causeText(cause)}`, { cause });
}

export function causeText(cause: unknown): string {
  if (cause instanceof Error) {
    const code = (cause as { code?: unknown }).code;
    return typeof code === "string" && !cause.message.includes(code)
      ? `${code}: ${cause.message}`
      : cause.message;
  }
  return String(cause);
}
