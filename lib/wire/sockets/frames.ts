/**
 * Bytes in, messages out. A message that lies whole in one chunk is handed on as a range of that chunk, uncopied; one that
 * is split over chunks is copied once, into memory of its own.
 *
 * What a stranger can make us hold: at most `STAGE_BYTES` for a frame until that much of it has really come, then the whole
 * frame if the sink grants it.
 */
import { FrameTooLargeError, HandshakeError, type ZapError } from "../../errors/index.ts";
import { HEADER_BYTES, HEADER_FAULTS, headerFault, type HeaderFaultName } from "../../message/index.ts";
import { uint32In } from "../../message/load.ts";
import { PREFIX_BYTES } from "./segment.ts";

/** A first frame longer than this is no hello. */
const HELLO_FRAME_BYTES_MAX = 1_024;
/** Bytes of a large frame that must have come before memory for all of it is asked for. */
export const STAGE_BYTES = 64 * 1024;

export interface FrameSink {
  /** The first frame of the connection, whatever it holds; `bytes` is the sink's to keep. */
  hello(bytes: Uint8Array): void;
  /** Whole, checked frames, one behind the other from `chunk[at]` on. The memory is the sink's to keep. */
  batch(chunk: Uint8Array, at: number, messages: number, bytes: number): void;
  /** One whole, checked message in memory of its own, which `memory` gave. */
  assembled(message: Uint8Array): void;
  /** Memory for a message that arrives in pieces; `recycle` takes back what was not handed on. */
  memory(bytes: number): Uint8Array;
  recycle(memory: Uint8Array): void;
  /** A frame shorter than a message header; empty for a bare keepalive. Valid during the call. */
  control(bytes: Uint8Array): void;
  /** A frame that is not a ZAP message; its bytes are passed over. */
  dropped(reason: HeaderFaultName): void;
  /** Nothing more can be read from this connection. */
  fatal(error: ZapError): void;
  /** May `bytes` be held for one frame? On false the reader stops, and is to be called again when there is room. */
  reserve(bytes: number): boolean;
  /** The reader must stop at the next frame boundary. */
  readonly stopped: boolean;
  /** What follows the hello is read elsewhere. */
  readonly elsewhere: boolean;
}

export class FrameReader {
  private readonly sink: FrameSink;
  private readonly frameBytesMax: number;
  private readonly versions: readonly number[] | undefined;
  /** The length prefix and the header of a frame that could not be taken in one piece. */
  private readonly head = new Uint8Array(PREFIX_BYTES + HEADER_BYTES);
  private headLength = 0;
  /** The frame being put together, its final length, and how much of it is there. */
  private body: Uint8Array | null = null;
  private bodyLength = 0;
  private filled = 0;
  /** Bytes of a dropped frame still to pass over. */
  private skip = 0;
  private greeting = true;
  private dead = false;
  /** Frames ended so far, of whatever kind. */
  frames = 0;
  /** Bytes that `reserve` granted for the frame being put together. */
  reserved = 0;

  constructor(sink: FrameSink, frameBytesMax: number, versions: readonly number[] | undefined) {
    this.sink = sink;
    this.frameBytesMax = frameBytesMax;
    this.versions = versions;
  }

  /** A frame has begun and not ended. */
  get midFrame(): boolean {
    return this.headLength > 0 || this.body !== null || this.skip > 0;
  }

  /** Takes bytes from `chunk` and returns how many; fewer than all where the reader had to stop. */
  consume(chunk: Uint8Array): number {
    const end = chunk.length;
    let at = 0;
    while (at < end && !this.dead) {
      if (this.skip > 0) at = this.pass(at, end);
      else if (this.body !== null) {
        const next = this.fill(chunk, at);
        if (next < 0) return at + (-next - 1);
        at = next;
      } else {
        if (this.sink.stopped || (!this.greeting && this.sink.elsewhere)) return at;
        if (this.headLength === 0 && !this.greeting) at = this.whole(chunk, at);
        if (at < end && this.headLength < PREFIX_BYTES + HEADER_BYTES) at = this.begin(chunk, at);
      }
    }
    return end;
  }

  /** The fast path: every message that lies whole in the chunk. Stops at the first frame that is anything else. */
  private whole(chunk: Uint8Array, from: number): number {
    const { sink, versions } = this;
    const last = chunk.length - (PREFIX_BYTES + HEADER_BYTES);
    let at = from;
    let first = from;
    let messages = 0;
    while (at <= last) {
      const length = uint32In(chunk, at);
      const stop = at + PREFIX_BYTES + length;
      if (length < HEADER_BYTES || stop > chunk.length || length > this.frameBytesMax) break;
      const fault = headerFault(chunk, at + PREFIX_BYTES, length, versions);
      if (fault === 0) messages++;
      else {
        if (messages > 0) sink.batch(chunk, first, messages, at - first - PREFIX_BYTES * messages);
        sink.dropped(HEADER_FAULTS[fault]!);
        first = stop;
        messages = 0;
      }
      this.frames++;
      at = stop;
    }
    if (messages > 0) sink.batch(chunk, first, messages, at - first - PREFIX_BYTES * messages);
    return at;
  }

  /** Gathers the prefix and header of a frame byte by byte, and decides what it is. */
  private begin(chunk: Uint8Array, from: number): number {
    const { head } = this;
    let at = this.gather(chunk, from, PREFIX_BYTES);
    if (this.headLength < PREFIX_BYTES) return at;
    const length = uint32In(head, 0);
    if (this.greeting) {
      if (length < HEADER_BYTES || length > HELLO_FRAME_BYTES_MAX) {
        return this.fail(
          new HandshakeError(`the first bytes are no ZAP hello (a frame of ${length} bytes)${tlsHint(head)}`),
          chunk,
        );
      }
      this.hold(new Uint8Array(length), length);
      return at;
    }
    if (length > this.frameBytesMax) return this.fail(tooLarge(length, this.frameBytesMax), chunk);
    if (length < HEADER_BYTES) {
      at = this.gather(chunk, at, PREFIX_BYTES + length);
      if (this.headLength < PREFIX_BYTES + length) return at;
      this.sink.control(head.slice(PREFIX_BYTES, PREFIX_BYTES + length));
      this.endFrame();
      return at;
    }
    at = this.gather(chunk, at, head.length);
    if (this.headLength < head.length) return at;
    const fault = announcedFault(head, PREFIX_BYTES, length, this.versions);
    if (fault !== 0) {
      this.sink.dropped(HEADER_FAULTS[fault]!);
      this.headLength = 0;
      this.skip = length - HEADER_BYTES;
      if (this.skip === 0) this.endFrame();
      return at;
    }
    const first = this.sink.memory(Math.min(length, STAGE_BYTES));
    first.set(head.subarray(PREFIX_BYTES));
    this.hold(first, length);
    this.filled = HEADER_BYTES;
    // Enough of it lies here already: spare the copy out of the stage.
    if (length > STAGE_BYTES && chunk.length - at >= STAGE_BYTES) this.grow();
    if (this.filled === length) this.deliver();
    return at;
  }

  private hold(body: Uint8Array, length: number): void {
    this.headLength = 0;
    this.body = body;
    this.bodyLength = length;
    this.filled = 0;
  }

  /** Copies into the body. Returns the new position, or `-(taken + 1)` where the sink has no room for the rest. */
  private fill(chunk: Uint8Array, from: number): number {
    let at = from;
    while (this.body !== null && at < chunk.length) {
      if (this.filled === this.body.length && !this.grow()) return -(at - from + 1);
      const count = Math.min(this.body.length - this.filled, chunk.length - at);
      this.body.set(chunk.subarray(at, at + count), this.filled);
      this.filled += count;
      at += count;
      if (this.filled === this.bodyLength) this.deliver();
    }
    return at;
  }

  /** From the stage into memory for the whole frame. */
  private grow(): boolean {
    const stage = this.body;
    if (stage === null || stage.length === this.bodyLength) return true;
    if (!this.sink.reserve(this.bodyLength)) return false;
    this.reserved = this.bodyLength;
    const whole = this.sink.memory(this.bodyLength);
    whole.set(stage.subarray(0, this.filled));
    this.sink.recycle(stage);
    this.body = whole;
    return true;
  }

  private deliver(): void {
    const { body } = this;
    if (body === null) return;
    this.body = null;
    if (this.greeting) {
      this.greeting = false;
      this.endFrame();
      this.sink.hello(body);
      return;
    }
    this.sink.assembled(body);
    this.endFrame();
  }

  /** Gives back what a frame that will never be whole holds. */
  close(): void {
    this.dead = true;
    if (this.body !== null && !this.greeting) this.sink.recycle(this.body);
    this.body = null;
  }

  private endFrame(): void {
    this.headLength = 0;
    this.filled = 0;
    this.reserved = 0;
    this.frames++;
  }

  private pass(at: number, end: number): number {
    const count = Math.min(this.skip, end - at);
    this.skip -= count;
    if (this.skip === 0) this.endFrame();
    return at + count;
  }

  private gather(chunk: Uint8Array, from: number, wanted: number): number {
    const count = Math.min(wanted - this.headLength, chunk.length - from);
    if (count <= 0) return from;
    this.head.set(chunk.subarray(from, from + count), this.headLength);
    this.headLength += count;
    return from + count;
  }

  private fail(error: ZapError, chunk: Uint8Array): number {
    this.dead = true;
    this.sink.fatal(error);
    return chunk.length;
  }
}

/**
 * `headerFault` where the header alone is there, at `at`: what its size field may reach to is `length`, the length that the frame has
 * announced.
 */
export function announcedFault(
  bytes: Uint8Array,
  at: number,
  length: number,
  versions: readonly number[] | undefined,
): number {
  const fault = headerFault(bytes, at, HEADER_BYTES, versions);
  if (HEADER_FAULTS[fault] !== "size") return fault;
  const size = uint32In(bytes, at + 12);
  return size >= HEADER_BYTES && size <= length ? 0 : fault;
}

/** What is wrong with a frame of `length` bytes where `limit` are possible. */
export function tooLarge(length: number, limit: number): FrameTooLargeError {
  return new FrameTooLargeError(`a frame of ${length} bytes was announced; limits.frameBytes is ${limit}`);
}

/** A TLS record starts with its kind, 20 to 23, and a version that starts with 3. */
function tlsHint(head: Uint8Array): string {
  return head[0]! >= 20 && head[0]! <= 23 && head[1] === 3 ? ": it speaks TLS" : "";
}
