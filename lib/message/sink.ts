/** Growing, zero-filled memory that a message or a list is written into. */
import { buildError } from "./store.ts";

export class Sink {
  /** Whole capacity; what is beyond `length` is garbage of earlier use. Replaced when it grows: do not hold it. */
  bytes: Uint8Array;
  /** Over the same memory as `bytes`. */
  view: DataView;
  /** Bytes written so far. */
  length: number;
  readonly #bytesMax: number;

  constructor(capacity: number, bytesMax: number) {
    this.bytes = new Uint8Array(capacity);
    this.view = new DataView(this.bytes.buffer);
    this.length = 0;
    this.#bytesMax = bytesMax;
  }

  /** Makes sure that `count` more bytes fit, without appending them. */
  ensure(count: number): void {
    const needed = this.length + count;
    if (needed > this.bytes.length) this.#grow(needed);
  }

  /** Appends `count` zero bytes and returns where they start. */
  reserve(count: number): number {
    const start = this.#extend(count);
    this.bytes.fill(0, start, this.length);
    return start;
  }

  /** Appends a copy of `bytes` and returns where it starts. */
  append(bytes: Uint8Array): number {
    const start = this.#extend(bytes.length);
    this.bytes.set(bytes, start);
    return start;
  }

  /** Appends zeros up to the next multiple of `alignment` and returns the end. */
  align(alignment: number): number {
    const over = this.length % alignment;
    if (over !== 0) this.reserve(alignment - over);
    return this.length;
  }

  #extend(count: number): number {
    this.ensure(count);
    const start = this.length;
    this.length = start + count;
    return start;
  }

  #grow(needed: number): void {
    if (needed > this.#bytesMax) {
      throw buildError(`the message would take ${needed} bytes or more; ${this.#bytesMax} are allowed`);
    }
    const old = this.bytes;
    this.bytes = new Uint8Array(Math.min(Math.max(needed, old.length * 2), this.#bytesMax));
    this.view = new DataView(this.bytes.buffer);
    this.bytes.set(old.subarray(0, this.length));
  }
}
