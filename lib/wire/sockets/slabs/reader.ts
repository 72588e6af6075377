/**
 * Bytes in, messages out, all of them in slabs. Two ways to read:
 *
 *  - small messages arrive many at a time in the shared stream slab, and lie there until they are released;
 *  - a message that is large, or that a turn ends in the middle of, gets a slab of its own; what is still to come of it is read
 *    straight into that, and what follows it into the stream slab.
 *
 * What is copied between slabs: the part of a message that had come when it got a slab of its own. On a stream of large
 * messages that is its header, because only the header is read ahead.
 *
 * What a peer can make us hold is the same as in `../frames.ts`: `STAGE_BYTES`, on the heap, until that much of a frame has really
 * come. Who has sent a large message before is believed: his next one gets its memory with its header, within `reserve`. A
 * reader that waits for memory holds none of the pool's, so that no two of them can wait for each other.
 */
import { ZapError } from "../../../errors/index.ts";
import { HEADER_BYTES, HEADER_FAULTS, headerFault, type HeaderFaultName } from "../../../message/index.ts";
import { uint32In } from "../../../message/load.ts";
import { announcedFault, STAGE_BYTES, tooLarge } from "../frames.ts";
import { PREFIX_BYTES } from "../segment.ts";
import { HeapPlace, type Place } from "./place.ts";
import { READ_BROKEN, READ_END, READ_NOTHING, type SlabSource } from "./source.ts";
import { SlabShare } from "./share.ts";
import type { StreamSlab } from "./stream.ts";

const HEAD_BYTES = PREFIX_BYTES + HEADER_BYTES;
/** From here on a message gets a slab of its own from the start. */
const BULK_BYTES = 32 * 1024;
/** The two largest slabs that the pool cuts from a shared region. */
const SLAB_BYTES = 64 * 1024;
const SLAB_BYTES_MAX = 1024 * 1024;
/** Read in one call: queues are looked at in between. */
const READ_BYTES = 256 * 1024;

export interface SlabSink {
  /** Whole, checked frames, one behind the other from `share.bytes[at]` on. One holder for each message is counted already. */
  slabFrames(share: SlabShare, at: number, messages: number, bytes: number): void;
  /** One whole, checked message: the first `bytes` of a slab. One holder is counted already. */
  slabMessage(share: SlabShare, bytes: number): void;
  control(bytes: Uint8Array): void;
  dropped(reason: HeaderFaultName): void;
  fatal(error: ZapError): void;
  /** May `bytes` be held for one frame? On false reading stops until there is room. */
  reserve(bytes: number): boolean;
  /** Nothing may be read now. */
  readonly paused: boolean;
}

export interface SlabLender {
  /** A slab of `bytes`, or null: then reading stops until there is one. */
  slab(bytes: number): Place | null;
}

/** Why a turn ended. */
export type TurnEnd = "nothing" | "budget" | "paused" | "ended" | "broken" | "dead";

export class SlabReader {
  private readonly sink: SlabSink;
  private readonly lender: SlabLender;
  private readonly stream: StreamSlab;
  private readonly frameBytesMax: number;
  private readonly versions: readonly number[] | undefined;
  /** The beginning of a frame, while nothing else is known of it. */
  private readonly head = new Uint8Array(HEAD_BYTES);
  private headLength = 0;
  /** The slab of the message being put together, the message's length, how much of it is there. */
  private body: Place | null = null;
  private bodyLength = 0;
  private filled = 0;
  /** How much of the message its slab is for: all of it, or a stage. */
  private room = 0;
  /** The beginning of a message that no slab was to be had for. */
  private parked: Uint8Array | null = null;
  /** Bytes of a dropped frame still to pass over. */
  private skip = 0;
  /** The last message was large: the next one probably is, too, so only its header is read ahead. */
  private bulk = false;
  private dead = false;
  /** Frames ended so far, of whatever kind. */
  frames = 0;
  /** Bytes that `reserve` granted for the frame being put together. */
  reserved = 0;
  /** Bytes copied from one place in memory to another since the start. */
  copiedBytes = 0;

  constructor(
    sink: SlabSink,
    lender: SlabLender,
    stream: StreamSlab,
    frameBytesMax: number,
    versions: readonly number[] | undefined,
  ) {
    this.sink = sink;
    this.lender = lender;
    this.stream = stream;
    this.frameBytesMax = frameBytesMax;
    this.versions = versions;
  }

  /** A frame has begun and not ended. */
  get midFrame(): boolean {
    return this.headLength > 0 || this.bodyLength > 0 || this.skip > 0;
  }

  /** Reads until nothing is there, about `budget` bytes were read, or it has to stop. */
  turn(source: SlabSource, budget: number): TurnEnd {
    try {
      return this.read(source, budget);
    } catch (error) {
      // The device has no memory for us, and nobody has any who could give it back.
      if (!(error instanceof ZapError)) throw error;
      this.dead = true;
      this.sink.fatal(error);
      return "dead";
    }
  }

  private read(source: SlabSource, budget: number): TurnEnd {
    let left = budget;
    for (;;) {
      if (this.dead) return "dead";
      if (this.sink.paused) return "paused";
      if (left <= 0) return "budget";
      const read = this.bodyLength > 0 ? this.fill(source) : this.scan(source, left);
      if (read === PAUSED) return "paused";
      if (read === READ_NOTHING) return "nothing";
      if (read === READ_BROKEN) return "broken";
      if (read === READ_END) return "ended";
      left -= read;
    }
  }

  /** Gives back what a frame that will never be whole holds. */
  close(): void {
    this.dead = true;
    this.body?.release();
    this.body = null;
    this.parked = null;
  }

  /** Reads into the message's own slab, and what follows the message into the stream. */
  private fill(source: SlabSource): number {
    if (this.parked !== null && !this.unpark()) return PAUSED;
    if (this.filled === this.room && !this.grow()) return PAUSED;
    const body = this.body!;
    const rest = this.room - this.filled;
    // Nothing may follow a stage: the rest of its message does.
    const last = this.room === this.bodyLength;
    const share = last ? this.stream.open() : null;
    const at = this.stream.at;
    const ahead = share === null ? 0 : this.bulk ? HEAD_BYTES : Math.min(READ_BYTES, share.bytes.length - at);
    share?.hold(1);
    const read = source.read(body, this.filled, rest, share?.slab ?? null, at, ahead);
    if (read > 0) {
      this.filled += Math.min(read, rest);
      if (last && read >= rest) {
        this.deliver();
        if (read > rest) this.parse(share!, at, at + read - rest);
      }
    }
    share?.letGo();
    return read;
  }

  /** Reads into the stream, frame after frame, as long as that gives whole ones. */
  private scan(source: SlabSource, budget: number): number {
    const share = this.stream.open();
    if (share === null) {
      const slab = this.lender.slab(this.stream.bytes);
      if (slab === null) return PAUSED;
      this.stream.supply(slab);
      return this.scan(source, budget);
    }
    const at = this.stream.at;
    const began = this.headLength;
    if (began > 0) share.bytes.set(this.head.subarray(0, began), at);
    const room = share.bytes.length - at - began;
    const most = this.bulk && this.skip === 0 ? HEAD_BYTES - began : Math.min(room, READ_BYTES);
    const wanted = Math.min(most, Math.max(budget, HEAD_BYTES));
    share.hold(1);
    const read = source.read(share.slab, at + began, wanted, null, 0, 0);
    if (read > 0) {
      this.headLength = 0;
      this.parse(share, at, at + began + read);
    }
    share.letGo();
    return read;
  }

  /** Takes the frames in `share.bytes[from..to)`, and puts the beginning of one that is not whole where it can go on. */
  private parse(share: SlabShare, from: number, to: number): void {
    const { stream } = this;
    const { bytes } = share;
    let at = from;
    stream.advance(to);
    while (at < to && !this.dead) {
      if (this.skip > 0) {
        const count = Math.min(this.skip, to - at);
        this.skip -= count;
        at += count;
        if (this.skip === 0) this.frames++;
        continue;
      }
      at = this.whole(share, at, to);
      const have = to - at;
      if (have === 0 || this.dead) return;
      if (have < PREFIX_BYTES) return this.keepHead(bytes, at, to);
      const length = uint32In(bytes, at);
      if (length > this.frameBytesMax) {
        this.dead = true;
        return this.sink.fatal(tooLarge(length, this.frameBytesMax));
      }
      if (length < HEADER_BYTES) {
        if (have < PREFIX_BYTES + length) return this.keepHead(bytes, at, to);
        this.frames++;
        this.sink.control(bytes.slice(at + PREFIX_BYTES, at + PREFIX_BYTES + length));
        at += PREFIX_BYTES + length;
      } else if (have < HEAD_BYTES) return this.keepHead(bytes, at, to);
      else {
        const fault = announcedFault(bytes, at + PREFIX_BYTES, length, this.versions);
        if (fault === 0) return this.begin(bytes, at + PREFIX_BYTES, to, length);
        this.sink.dropped(HEADER_FAULTS[fault]!);
        this.skip = PREFIX_BYTES + length;
      }
    }
  }

  /** Every message that lies whole in the range. Stops at the first frame that is anything else. */
  private whole(share: SlabShare, from: number, to: number): number {
    const { sink, versions } = this;
    const { bytes } = share;
    let at = from;
    let messages = 0;
    let length = 0;
    while (at + HEAD_BYTES <= to) {
      length = uint32In(bytes, at);
      const stop = at + PREFIX_BYTES + length;
      if (length < HEADER_BYTES || stop > to || length > this.frameBytesMax) break;
      if (headerFault(bytes, at + PREFIX_BYTES, length, versions) !== 0) break;
      messages++;
      at = stop;
    }
    if (messages === 0) return at;
    this.frames += messages;
    this.bulk = false;
    share.hold(messages);
    sink.slabFrames(share, from, messages, at - from - PREFIX_BYTES * messages);
    return at;
  }

  private keepHead(bytes: Uint8Array, at: number, to: number): void {
    this.head.set(bytes.subarray(at, to));
    this.headLength = to - at;
    this.copiedBytes += to - at;
  }

  /** A message that is not whole moves to a slab of its own. */
  private begin(bytes: Uint8Array, at: number, to: number, length: number): void {
    const trusted = this.bulk;
    this.bulk = length >= BULK_BYTES;
    this.bodyLength = length;
    this.filled = to - at;
    const body = this.bodyFor(trusted);
    if (body === null) this.parked = bytes.slice(at, to);
    else body.bytes.set(bytes.subarray(at, to));
    this.copiedBytes += this.filled;
    this.body = body;
    if (this.filled === length) this.deliver();
  }

  /** Memory for the message, or for its stage. Null where there is none now. */
  private bodyFor(trusted: boolean): Place | null {
    const { sink, lender, bodyLength } = this;
    const large = bodyLength > STAGE_BYTES;
    if (large && this.filled < STAGE_BYTES && !trusted) {
      this.room = STAGE_BYTES;
      return new HeapPlace(STAGE_BYTES);
    }
    const bytes = slabBytes(bodyLength);
    if (large && this.reserved === 0) {
      if (!sink.reserve(bytes)) return null;
      this.reserved = bytes;
    }
    const slab = lender.slab(bytes);
    if (slab !== null) this.room = bodyLength;
    return slab;
  }

  /** There may be memory now for what is parked. */
  private unpark(): boolean {
    const parked = this.parked!;
    const body = this.bodyFor(false);
    if (body === null) return false;
    body.bytes.set(parked);
    this.copiedBytes += parked.length;
    this.parked = null;
    this.body = body;
    return true;
  }

  /** From the stage into a slab for the whole message. */
  private grow(): boolean {
    const stage = this.body!;
    const body = this.bodyFor(true);
    if (body === null) return false;
    body.bytes.set(stage.bytes.subarray(0, this.filled));
    this.copiedBytes += this.filled;
    stage.release();
    this.body = body;
    return true;
  }

  private deliver(): void {
    const { body, bodyLength } = this;
    this.body = null;
    this.bodyLength = 0;
    this.filled = 0;
    this.frames++;
    this.sink.slabMessage(new SlabShare(body!, 1, this.stream.strict), bodyLength);
    this.reserved = 0;
  }
}

/** Beside the answers of a source: no memory, or not now. */
const PAUSED = -3;

/**
 * What to ask the pool for: what it would take for it anyway. Above its largest slab, each size has a region of its own, and only one of the same size is used again: so
 * four sizes are asked for between a power of two and the next.
 */
function slabBytes(bytes: number): number {
  if (bytes <= SLAB_BYTES) return bytes;
  if (bytes <= SLAB_BYTES_MAX) return SLAB_BYTES_MAX;
  const step = 2 ** (Math.floor(Math.log2(bytes)) - 2);
  return Math.ceil(bytes / step) * step;
}
