/** The framing by hand: a u32 little-endian length, then the message. Shared by the contenders on plain sockets. */
import type { Take } from "./peer.ts";

export const HEADER_BYTES = 4;
const MESSAGE_MAX = 64 * 1024 * 1024;

/** Writes the frame of `message` into `into` at `at`; returns where it ends. There must be room. */
export function putFrame(into: Uint8Array, at: number, message: Uint8Array): number {
  putHeader(into, at, message.length);
  into.set(message, at + HEADER_BYTES);
  return at + HEADER_BYTES + message.length;
}

export function putHeader(into: Uint8Array, at: number, length: number): void {
  into[at] = length & 0xff;
  into[at + 1] = (length >>> 8) & 0xff;
  into[at + 2] = (length >>> 16) & 0xff;
  into[at + 3] = length >>> 24;
}

function lengthAt(bytes: Uint8Array, at: number): number {
  const length = (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0;
  if (length > MESSAGE_MAX) throw new Error(`a frame of ${length} bytes arrived`);
  return length;
}

/** Cuts frames out of chunks: a view where the message lies in one chunk, a copy where it is split over several. */
export class FrameReader {
  readonly #take: Take;
  readonly #header = new Uint8Array(HEADER_BYTES);
  #headerBytes = 0;
  /** The message being put together, and how much of it is there. */
  #split: Uint8Array | null = null;
  #splitBytes = 0;
  #assembly = new Uint8Array(0);

  constructor(take: Take) {
    this.#take = take;
  }

  push(chunk: Uint8Array): void {
    let at = this.#headerBytes > 0 || this.#split !== null ? this.#goOn(chunk) : 0;
    const end = chunk.length;
    while (end - at >= HEADER_BYTES) {
      const from = at + HEADER_BYTES;
      const to = from + lengthAt(chunk, at);
      if (to > end) {
        this.#begin(to - from, chunk.subarray(from));
        return;
      }
      this.#take(chunk.subarray(from, to));
      at = to;
    }
    while (at < end) this.#header[this.#headerBytes++] = chunk[at++]!;
  }

  #begin(length: number, part: Uint8Array): void {
    // One buffer for all split messages: `take` may use the bytes only during the call.
    if (this.#assembly.length < length) this.#assembly = new Uint8Array(length);
    this.#split = this.#assembly.subarray(0, length);
    this.#split.set(part);
    this.#splitBytes = part.length;
  }

  /** Finishes what the chunks before began, as far as this one goes; returns where the next frame starts. */
  #goOn(chunk: Uint8Array): number {
    let at = 0;
    if (this.#split === null) {
      while (this.#headerBytes < HEADER_BYTES && at < chunk.length)
        this.#header[this.#headerBytes++] = chunk[at++]!;
      if (this.#headerBytes < HEADER_BYTES) return at;
      this.#headerBytes = 0;
      this.#begin(lengthAt(this.#header, 0), chunk.subarray(at, at));
    }
    const message = this.#split!;
    const part = Math.min(message.length - this.#splitBytes, chunk.length - at);
    message.set(part === chunk.length ? chunk : chunk.subarray(at, at + part), this.#splitBytes);
    this.#splitBytes += part;
    if (this.#splitBytes === message.length) {
      this.#split = null;
      this.#take(message);
    }
    return at + part;
  }
}
