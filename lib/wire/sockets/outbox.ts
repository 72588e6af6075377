/**
 * Messages in, bytes out: one peer's frames on their way to the kernel, in order.
 *
 * Small messages are copied into blocks, so that many share one system call. Large ones are written straight from the
 * caller's memory and settle when the last byte is with the kernel. A segment is a block or a large message.
 *
 * When a connection is lost, `rewind` goes back to the first frame that was not wholly handed to the kernel: the far end
 * throws a cut frame away, so sending that frame again on the next connection duplicates nothing.
 */
import { MessageError } from "../../errors/index.ts";
import { uint32In } from "../../message/load.ts";
import { Fifo } from "../common/fifo.ts";
import type { Settle } from "../common/settle.ts";
import {
  concat,
  frameStart,
  PREFIX_BYTES,
  putLength,
  segmentOf,
  type Boundary,
  type Segment,
} from "./segment.ts";

/** Messages above this go straight from the caller's memory. */
const DIRECT_BYTES_MIN = 128 * 1024;
/** Room for four messages of 64 KiB with their lengths, so that they leave in one write. */
const BLOCK_BYTES = 260 * 1024;
/** What a quiet peer starts with. */
const SMALL_BLOCK_BYTES = 16 * 1024;
const BLOCKS_KEPT = 16;

/** Blocks and byte counts that all peers of a node share. */
export class OutboxPool {
  /** Bytes queued over all peers. */
  queuedBytes = 0;
  private readonly small: Uint8Array[] = [];
  private readonly large: Uint8Array[] = [];

  block(large: boolean): Uint8Array {
    const kept = large ? this.large : this.small;
    return kept.pop() ?? new Uint8Array(large ? BLOCK_BYTES : SMALL_BLOCK_BYTES);
  }

  recycle(block: Uint8Array): void {
    if (block.length === BLOCK_BYTES) keep(this.large, block);
    else if (block.length === SMALL_BLOCK_BYTES) keep(this.small, block);
  }
}

function keep(blocks: Uint8Array[], block: Uint8Array): void {
  if (blocks.length < BLOCKS_KEPT) blocks.push(block);
}

/** What of a Bun socket this file uses. Takes part of the data; returns how much, or a negative number when it is closed. */
export interface ByteSink {
  write(bytes: Uint8Array, offset: number, length: number): number;
}

/** Hears of messages that are wholly with the kernel: how many, and their bytes without framing. */
export type Sent = (messages: number, bytes: number) => void;

export type WriteResult = "drained" | "blocked" | "gone";

export class Outbox {
  /** Framed bytes not yet with the kernel. */
  bytes = 0;
  /** Messages not wholly with the kernel. */
  messages = 0;
  private readonly pool: OutboxPool;
  private readonly segments = new Fifo<Segment>();
  /** The block that the next small message may be added to. */
  private tail: Segment | null = null;
  private busy = false;
  /** How many connections in a row were lost in the middle of the frame at the head. */
  cuts = 0;

  constructor(pool: OutboxPool) {
    this.pool = pool;
  }

  /** Copies a small message in. The caller may reuse its bytes at once. */
  append(message: Uint8Array): void {
    const need = PREFIX_BYTES + message.length;
    const tail = this.room(need);
    const { bytes, end } = tail;
    putLength(bytes, end, message.length);
    bytes.set(message, end + PREFIX_BYTES);
    tail.end = end + need;
    tail.messages++;
    tail.payload += message.length;
    this.messages++;
    this.count(need);
  }

  static isDirect(message: Uint8Array): boolean {
    return message.length > DIRECT_BYTES_MIN;
  }

  /** Queues a large message by reference. `settle` hears of it when its last byte is with the kernel. */
  appendDirect(given: Uint8Array, settle: Settle): void {
    // A `Buffer` is a `Uint8Array` whose `slice` does not copy: from here on it is the plain thing.
    const message = new Uint8Array(given.buffer, given.byteOffset, given.byteLength);
    // The length and the first bytes ride with what is queued already: no system call for four bytes.
    const tail = this.room(SMALL_BLOCK_BYTES);
    const first = SMALL_BLOCK_BYTES - PREFIX_BYTES;
    putLength(tail.bytes, tail.end, message.length);
    tail.bytes.set(message.subarray(0, first), tail.end + PREFIX_BYTES);
    tail.end += SMALL_BLOCK_BYTES;
    const { length } = message;
    this.segments.push({
      bytes: message,
      start: first,
      end: length,
      messages: 1,
      payload: length,
      kind: "direct",
      first,
      settle,
    });
    this.tail = null;
    this.messages++;
    this.count(PREFIX_BYTES + message.length);
  }

  /** Queues a framed control frame. It belongs to this connection alone and is forgotten by `rewind`. */
  appendControl(frame: Uint8Array, settle: Settle): void {
    this.segments.push(segmentOf(frame, "control", settle));
    this.tail = null;
    this.count(frame.length);
  }

  /**
   * Writes what the socket takes. `sent` is called with the number of messages that went out whole. Throws `MessageError` where
   * the memory of a large message was taken away (transferred or shrunk) before it was out.
   */
  write(socket: ByteSink, sent: Sent): WriteResult {
    for (;;) {
      const segment = this.segments.peek();
      if (segment === undefined) return "drained";
      // Cutting the connection is all that is left when the rest of a frame is no more.
      if (hasVanished(segment)) throw vanished();
      const length = segment.end - segment.start;
      const written = length === 0 ? 0 : socket.write(segment.bytes, segment.start, length);
      if (written < 0) return "gone";
      segment.start += written;
      this.count(-written);
      if (written < length) return "blocked";
      this.finish(segment, sent);
    }
  }

  private finish(segment: Segment, sent: Sent): void {
    this.segments.shift();
    this.messages -= segment.messages;
    if (segment === this.tail) this.tail = null;
    if (segment.kind === "block") {
      if (this.segments.length === 0) this.busy = segment.end > SMALL_BLOCK_BYTES / 2;
      this.pool.recycle(segment.bytes);
    }
    if (segment.messages > 0) {
      this.cuts = 0;
      sent(segment.messages, segment.payload);
    }
    segment.settle?.done();
  }

  /** Takes a large message back out, if none of it is with the kernel yet. Its frame in the preceding block goes too. */
  retract(settle: Settle): boolean {
    const all = this.segments.drain();
    const at = all.findIndex((segment) => segment.settle === settle);
    const direct = all[at];
    const block = all[at - 1];
    let retracted = false;
    if (direct !== undefined && block !== undefined && direct.start === direct.first) {
      const frameStart = block.end - PREFIX_BYTES - direct.first;
      if (block.start <= frameStart) {
        block.end = frameStart;
        this.messages--;
        this.count(-(PREFIX_BYTES + direct.end));
        all.splice(at, 1);
        // It was the first message, so it was the one that had been cut.
        if (all.slice(0, at).every((segment) => segment.messages === 0)) this.cuts = 0;
        retracted = true;
      }
    }
    for (const segment of all) this.segments.push(segment);
    return retracted;
  }

  /** A large message that can no longer be taken back is copied, so that its sender gets the bytes back at once. */
  detach(settle: Settle): void {
    const all = this.segments.drain();
    for (const segment of all) {
      if (segment.settle === settle) {
        segment.settle = null;
        if (hasVanished(segment)) settle.failed(vanished());
        else {
          segment.bytes = segment.bytes.slice();
          settle.done();
        }
      }
      this.segments.push(segment);
    }
  }

  /**
   * After a loss: forgets control frames and goes back to the start of the frame that was cut. `sent` hears of messages that
   * had gone out whole from a block that had not.
   */
  rewind(sent: Sent): void {
    const all: Segment[] = [];
    for (const segment of this.segments.drain()) {
      if (segment.kind !== "control") all.push(segment);
      else segment.settle?.done();
    }
    this.tail = null;
    for (const [index, segment] of all.entries()) {
      if (segment.kind === "block") {
        const boundary = frameStart(segment, segment.start);
        if (boundary.messages > 0) this.cuts = 0;
        if (boundary.at < segment.start) this.cuts++;
        segment.start = boundary.at;
        this.pass(segment, boundary, sent);
        this.segments.push(segment);
      } else {
        // Its length and first bytes were in the block before it: gone with that block unless it is still here.
        const before = all[index - 1];
        if (hasVanished(segment)) {
          this.forgetVanished(segment, before);
          continue;
        }
        segment.start = segment.first;
        if (before === undefined || before.kind !== "block") {
          this.cuts++;
          const head = new Uint8Array(PREFIX_BYTES + segment.first);
          putLength(head, 0, segment.bytes.length);
          head.set(segment.bytes.subarray(0, segment.first), PREFIX_BYTES);
          this.segments.push(segmentOf(head, "block", null));
        }
        this.segments.push(segment);
      }
    }
    this.recount();
  }

  /** A large message whose memory is gone: its `send` fails, and what the block before holds of it goes too. */
  private forgetVanished(direct: Segment, before: Segment | undefined): void {
    this.messages--;
    if (before?.kind === "block") {
      before.end -= PREFIX_BYTES + direct.first;
      before.start = Math.min(before.start, before.end);
    }
    direct.settle?.failed(vanished());
  }

  /**
   * Gives up the frame at the head, after `rewind`. Returns 1 where its `send` had resolved; fails that `send` and returns 0
   * where it still waits.
   */
  dropHead(error: Error): number {
    const block = this.segments.peek();
    if (block === undefined) return 0;
    this.cuts = 0;
    this.messages--;
    const frame = PREFIX_BYTES + uint32In(block.bytes, block.start);
    this.count(-frame);
    if (block.start + frame <= block.end) {
      block.start += frame;
      block.first = block.start;
      block.messages--;
      block.payload -= frame - PREFIX_BYTES;
      return 1;
    }
    block.end = block.start;
    const [, direct, ...rest] = this.segments.drain();
    for (const segment of rest) this.segments.push(segment);
    direct?.settle?.failed(error);
    return direct?.settle === null ? 1 : 0;
  }

  /** The frame that has begun can never be whole: `cut` has nothing to give. */
  get headHasVanished(): boolean {
    const head = this.segments.peek();
    if (head === undefined) return false;
    if (hasVanished(head)) return true;
    // The block before a large message holds the start of its frame.
    const next = this.segments.at(1);
    if (head.kind !== "block" || next === undefined || !hasVanished(next)) return false;
    return head.start > head.end - PREFIX_BYTES - next.first;
  }

  /**
   * For a connection that is retired while it works: takes out the rest of the frame that was cut, to be finished there, and
   * leaves everything after it for the next connection. Control frames go with it.
   */
  cut(sent: Sent): Uint8Array | null {
    if (this.headHasVanished) {
      this.rewind(sent);
      return null;
    }
    const head = this.segments.peek();
    let rest: Uint8Array | null = null;
    const messagesBefore = this.messages;
    if (head?.kind === "block") {
      const boundary = frameStart(head, head.start);
      if (boundary.at < head.start) {
        const length = PREFIX_BYTES + uint32In(head.bytes, boundary.at);
        const frameEnd = boundary.at + length;
        rest = head.bytes.slice(head.start, Math.min(frameEnd, head.end));
        if (frameEnd > head.end) {
          const direct = this.segments.drain();
          direct.shift();
          const large = direct.shift();
          for (const segment of direct) this.segments.push(segment);
          if (large !== undefined) rest = concat(rest, large.bytes.subarray(large.first));
          this.messages -= head.messages + 1;
          sent(head.messages + 1, head.payload + (large?.payload ?? 0));
          large?.settle?.done();
        } else {
          head.start = frameEnd;
          this.pass(head, { at: frameEnd, messages: boundary.messages + 1 }, sent);
        }
      }
    } else if (head !== undefined && head.start > head.first) {
      rest = head.bytes.slice(head.start, head.end);
      this.segments.shift();
      this.messages -= head.messages;
      if (head.messages > 0) sent(head.messages, head.payload);
      head.settle?.done();
    } else if (head?.kind === "direct") {
      // The block with its prefix is out: the frame has begun.
      rest = head.bytes.slice(head.start, head.end);
      this.segments.shift();
      this.messages--;
      sent(1, head.payload);
      head.settle?.done();
    }
    if (this.messages < messagesBefore) this.cuts = 0;
    this.rewind(sent);
    return rest;
  }

  /**
   * Empties it. Large messages whose `send` still waits are failed with `error`; returns how many messages were lost whose
   * `send` had resolved.
   */
  clear(error: Error): number {
    let lost = this.messages;
    for (const segment of this.segments.drain()) {
      if (segment.kind === "direct" && segment.settle !== null) lost--;
      segment.settle?.failed(error);
    }
    this.tail = null;
    this.messages = 0;
    this.cuts = 0;
    this.count(-this.bytes);
    return lost;
  }

  /** A block with room for `need` bytes at its end. */
  private room(need: number): Segment {
    const { tail } = this;
    if (tail !== null && tail.end + need <= tail.bytes.length) return tail;
    if (tail !== null) this.busy = true;
    const bytes = this.pool.block(this.busy || need > SMALL_BLOCK_BYTES);
    const segment = segmentOf(bytes, "block", null);
    segment.end = 0;
    this.segments.push(segment);
    this.tail = segment;
    return segment;
  }

  /** Notes that the frames before `boundary` are out. */
  private pass(block: Segment, boundary: Boundary, sent: Sent): void {
    const { messages } = boundary;
    const bytes = boundary.at - block.first - PREFIX_BYTES * messages;
    block.first = boundary.at;
    block.messages -= messages;
    block.payload -= bytes;
    this.messages -= messages;
    if (messages > 0) sent(messages, bytes);
  }

  private count(bytes: number): void {
    this.bytes += bytes;
    this.pool.queuedBytes += bytes;
  }

  private recount(): void {
    let bytes = 0;
    const all = this.segments.drain();
    for (const segment of all) {
      bytes += segment.end - segment.start;
      this.segments.push(segment);
    }
    this.count(bytes - this.bytes);
  }
}

function hasVanished(segment: Segment): boolean {
  return segment.bytes.length < segment.end;
}

export function vanished(): MessageError {
  return new MessageError(
    "ERR_ZAP_MESSAGE_SHORT",
    "send: the message's memory was taken away before it was sent",
  );
}
