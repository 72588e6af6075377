/**
 * One socket and its state. It reads frames, keeps count, and writes what it is given; what a hello means and which
 * connection a peer uses is decided elsewhere (`greeter.ts`).
 */
import type { Socket } from "bun";
import { ConnectionLostError, HandshakeError, type ZapError } from "../../errors/index.ts";
import { heapArena } from "../../memory/index.ts";
import type { HeaderFaultName } from "../../message/index.ts";
import type { Link } from "./above.ts";
import { FrameReader, type FrameSink } from "./frames.ts";
import { decodeAck, encodeAck } from "./hello.ts";
import {
  PAUSE_HELD,
  PAUSE_MEMORY,
  PAUSE_PEER_QUEUE,
  PAUSE_RESERVE,
  PAUSE_TOTAL_QUEUE,
  type Hub,
} from "./hub.ts";
import type { Lease } from "../common/lease.ts";
import { Batch, type BatchSource } from "./inbox.ts";
import type { Peer } from "./peer.ts";
import { SlabIntake, type IntakeOwner } from "./slabs/index.ts";
import type { SlabShare } from "./slabs/share.ts";

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

/** Bun's sockets have it, its types do not. */
type Closable = WireSocket & { close(): void };

export class Connection implements FrameSink, IntakeOwner, BatchSource {
  readonly hub: Hub;
  readonly owner: ConnectionOwner;
  readonly inbound: boolean;
  readonly address: string;
  private readonly secure: boolean;
  socket: WireSocket | null = null;
  state: ConnectionState;
  peer: Peer | null = null;
  peerId = "";
  /** The far end is this library: it understands control frames. */
  kin = false;
  /** What the wire above knows it by; null where it carries messages. */
  link: Link | null = null;
  /** What has been counted as copied on its way into messages. */
  private copied = 0;
  /** The names in the peer's certificate; null on plaintext connections. */
  certificateNames: ReadonlySet<string> | null = null;
  /** What went wrong first; reported when the socket is gone. */
  error: ZapError | null = null;
  /** What broke it, found out by us and not by Bun. */
  private cause: Error | null = null;
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
  /** Reads everything behind the hello where messages go into slabs. */
  private intake: SlabIntake | null = null;
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
    this.secure = secure;
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

  /** It carries what two nodes say to each other, and no messages. */
  becomeLink(link: Link): void {
    this.link = link;
    this.hub.bytesCopied -= this.copied;
  }

  // ---- receiving

  feed(chunk: Uint8Array): void {
    this.readAt = performance.now();
    this.heard = true;
    if (this.state === "closed") return;
    if (this.state === "securing") {
      return this.fail(new HandshakeError(`${this.address}: data came before TLS was up`));
    }
    if (this.link === null) {
      this.copied += chunk.length;
      this.hub.bytesCopied += chunk.length;
    }
    if (this.intake !== null) this.intake.feed(chunk);
    else if (this.pauses !== 0 || this.waiting.length > 0) this.waiting.push(chunk);
    else this.read(chunk);
  }

  private read(chunk: Uint8Array): void {
    const framesBefore = this.reader.frames;
    const consumed = this.reader.consume(chunk);
    this.chargedChunk = null;
    if (this.isClosed()) return;
    if (this.elsewhere) this.readElsewhere();
    if (this.intake !== null) return this.intake.feed(chunk.subarray(consumed));
    if (consumed < chunk.length) this.waiting.unshift(chunk.subarray(consumed));
    this.onTurn(framesBefore);
  }

  /** After the hello: messages go into slabs, straight from the socket where nothing has to be decrypted. */
  private readElsewhere(): void {
    const { hub, socket } = this;
    if (hub.memory === null) return;
    this.intake = new SlabIntake(this, hub.memory, hub.limits.frameBytes, hub.versions);
    const fd = (socket as unknown as { fd?: number } | null)?.fd;
    if (this.secure || fd === undefined || fd < 0 || !this.intake.goNative(fd)) return;
    socket?.pause();
  }

  /** Bytes have come that Bun has not seen. */
  onRead(): void {
    this.readAt = performance.now();
  }

  /** Some bytes have been read, and the frames in them delivered. */
  onTurn(framesBefore: number): void {
    const reader = this.intake?.reader ?? this.reader;
    if (reader.midFrame) {
      if (this.frameAt === 0 || reader.frames !== framesBefore) this.frameAt = this.readAt;
    } else this.frameAt = 0;
    this.checkQueues();
    if (this.bytesSinceAck >= ACK_EVERY_BYTES) this.acknowledge();
  }

  private checkQueues(): void {
    if (this.queuedBytes >= this.hub.limits.recvQueueBytes && !this.hub.closing) this.pause(PAUSE_PEER_QUEUE);
    this.hub.checkTotal(this);
  }

  private isClosed(): boolean {
    return this.state === "closed";
  }

  get copiedByIntake(): number {
    return this.intake?.copiedBytes ?? 0;
  }

  /** We read the socket ourselves, and Bun does not. */
  private get readsSocket(): boolean {
    return this.intake?.isNative === true;
  }

  get elsewhere(): boolean {
    return this.peer !== null && this.hub.memory !== null;
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
    const lease = this.currentLease();
    this.deliver(new Batch(this, chunk, at, messages, charge, lease, true, null), messages, bytes);
  }

  assembled(message: Uint8Array): void {
    this.hub.unreserve(this.reader.reserved);
    const { length } = message;
    const charge = length + BATCH_OVERHEAD_BYTES;
    this.hub.bytesCopied += length;
    const lease = this.currentLease();
    this.deliver(new Batch(this, message, 0, 1, charge, lease, false, heapArena.messages), 1, length);
  }

  slabFrames(share: SlabShare, at: number, messages: number, bytes: number): void {
    const charge = bytes + BATCH_OVERHEAD_BYTES;
    const lease = this.currentLease();
    this.deliver(new Batch(this, share.bytes, at, messages, charge, lease, true, share), messages, bytes);
    this.checkQueues();
  }

  slabMessage(share: SlabShare, length: number): void {
    if (this.intake !== null) this.hub.unreserve(this.intake.reader.reserved);
    const lease = this.currentLease();
    const charge = share.slab.size + BATCH_OVERHEAD_BYTES;
    const message = share.bytes.subarray(0, length);
    this.deliver(new Batch(this, message, 0, 1, charge, lease, false, share), 1, length);
    this.checkQueues();
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
    if (this.link !== null) return this.hear(batch, this.link);
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
    hub.above?.queued();
  }

  private hear(batch: Batch, link: Link): void {
    while (batch.messages > 0 && !this.isClosed() && !this.hub.closing) {
      const said = batch.take();
      this.hub.above?.heard(link, said.message);
      said.release();
    }
    batch.discard();
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
      if (!this.readsSocket) this.socket?.pause();
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
    if (this.intake !== null) return this.readOn(this.intake);
    while (this.pauses === 0 && this.waiting.length > 0) {
      const chunk = this.waiting.shift();
      if (chunk !== undefined) this.read(chunk);
    }
    if (this.paused || this.isClosed()) return;
    this.socket?.resume();
    if (this.remoteEnded) this.owner.onEnded(this);
  }

  private readOn(intake: SlabIntake): void {
    // Whoever reads on now stands behind those who still wait, when there is room the next time.
    if (intake.isNative) this.hub.lastInLine(this);
    intake.go();
    if (!intake.isNative && !this.paused && !this.isClosed()) this.socket?.resume();
  }

  unpauseAll(): void {
    this.unpause(PAUSE_HELD | PAUSE_PEER_QUEUE | PAUSE_TOTAL_QUEUE | PAUSE_RESERVE | PAUSE_MEMORY);
  }

  get discarding(): boolean {
    return this.hub.closing;
  }

  /** No slab was to be had (true), or one is there now (false). */
  onStarved(starved: boolean): void {
    if (starved) this.pause(PAUSE_MEMORY);
    else this.unpause(PAUSE_MEMORY);
  }

  get paused(): boolean {
    return this.pauses !== 0;
  }

  get midFrame(): boolean {
    return (this.intake?.reader ?? this.reader).midFrame;
  }

  /** Bun says that the far end has half-closed. What it said before is read first. */
  ended(): void {
    // We read the socket ourselves, and see its end when we have got there.
    if (this.readsSocket) return;
    if (this.intake !== null) return this.intake.end();
    this.remoteEnded = true;
    if (this.waiting.length === 0) this.owner.onEnded(this);
  }

  onStreamEnd(): void {
    this.remoteEnded = true;
    this.owner.onEnded(this);
  }

  onStreamBroken(cause: Error): void {
    this.broken(cause);
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
      if (written < 0) {
        // Bun will say that the socket is broken, unless we are the ones who read it.
        if (this.readsSocket) this.broken(new Error("the socket takes nothing any more"));
        return;
      }
      this.wroteAt = performance.now();
      if (written < this.raw.length) {
        this.raw = this.raw.subarray(written);
        return;
      }
      this.raw = null;
    }
    if (this.finWanted) {
      const before = this.finSent;
      this.finSent = true;
      if (!before) socket.shutdown();
      // A socket that Bun does not read, it does not close by itself either. The kernel still sends what it has.
      if (this.remoteEnded && this.readsSocket) (socket as Closable).close();
      else if (this.remoteEnded && before) socket.end();
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
    this.drain();
    if (this.isClosed()) return;
    // Bun calls back at once, and knows nothing of a cause.
    this.cause ??= cause;
    this.socket?.terminate();
    this.gone(cause);
  }

  /** Bun has closed the socket. What came before can still be read where we read it ourselves. */
  closed(cause: Error | null): void {
    this.drain();
    this.gone(cause);
  }

  private drain(): void {
    if (!this.isClosed() && !this.paused) this.intake?.drain();
  }

  /** The socket is no more. */
  gone(told: Error | null): void {
    if (this.state === "closed") return;
    const cause = this.cause ?? told;
    const { midFrame, intake } = this;
    this.hub.unreserve((intake?.reader ?? this.reader).reserved);
    this.reader.close();
    intake?.close();
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
