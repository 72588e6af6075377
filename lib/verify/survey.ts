/** The parts of a list: where they lie, which of them are the same, and where they go. */
import { isUint8Array } from "node:util/types";
import { MOST_BYTES } from "./batch.ts";
import { TABLE_STRIDE, type Item } from "./contract.ts";
import { ReleasedError } from "./held.ts";
import { bufferOf, isReleased, lengthOf, offsetOf, plainBytes } from "./views.ts";

/** Offset and length of the parts of a malformed item: outside of any batch. */
const NOWHERE = 0xffff_ffff;
const PARTS = TABLE_STRIDE / 2;
/** Bytes that are copied in one go. */
const GO_BYTES = 1024 * 1024;
/** Parts of so many bytes are worth more than a glance, and are known again wherever in the list they stand. */
const KNOWN_BYTES = 512;
/** So many of them are remembered before all are forgotten: a map that grows further would hold up the event loop. */
const KNOWN_MOST = 32_768;
/** The engine makes a buffer for a small view when it is first asked for it, which costs more than to copy so many bytes. */
const BUFFER_BYTES = 8_192;

/** Adds the parts of an item to `go`, each read once; or nothing, three times, where it is malformed. */
function read(items: readonly unknown[], at: number, go: (Uint8Array | null)[]): boolean {
  try {
    const item = items[at];
    if (item !== undefined && item !== null) {
      const { publicKey, message, signature } = item as Record<keyof Item, unknown>;
      if (isUint8Array(publicKey) && isUint8Array(message) && isUint8Array(signature)) {
        go.push(publicKey, message, signature);
        return true;
      }
    }
  } catch {
    // A getter or a proxy of the caller's: there is no such item.
  }
  go.push(null, null, null);
  return false;
}

/** A list as it was when it was looked at: its parts, and where they go in a copy. */
export class Survey {
  /** Offsets are those in a copy: a part that stands in an earlier item, too, has its offset. */
  readonly table: Uint32Array;
  /** What the copy takes, bytes. */
  bytes = 0;
  /** The parts, three for each item, some items at a time: one array of them all would have to be moved as it grows. */
  readonly #goes: (Uint8Array | null)[][] = [];
  /** Large parts, and where in the table they stand. */
  readonly #known = new Map<Uint8Array, number>();
  /** The one buffer that holds all parts so far; null where there is none. */
  #buffer: ArrayBufferLike | null = null;
  #isOne = true;
  #start = Number.MAX_SAFE_INTEGER;
  #end = 0;

  constructor(table: Uint32Array) {
    this.table = table;
  }

  /** Looks at the items `from` to `to`, those after the call before. `isLate`: what is released by now may have been well when the batch was given. */
  add(items: readonly unknown[], from: number, to: number, isLate: boolean): void {
    const { table } = this;
    const go: (Uint8Array | null)[] = [];
    this.#goes.push(go);
    for (let item = from, row = from * TABLE_STRIDE; item < to; item++, row += TABLE_STRIDE) {
      const isWhole = read(items, item, go) && this.#measure(go, row, isLate);
      if (isWhole)
        for (let part = 0; part < PARTS; part++) this.#note(go, go.length - PARTS + part, row + 2 * part);
      else table.fill(NOWHERE, row, row + TABLE_STRIDE);
    }
  }

  /** Writes the lengths of the item that is the last of `go`. False, and the item is not there any more, where a part was released. */
  #measure(go: (Uint8Array | null)[], row: number, isLate: boolean): boolean {
    const first = go.length - PARTS;
    for (let part = 0; part < PARTS; part++) {
      const bytes = go[first + part]!;
      const length = lengthOf(bytes);
      if (length === 0 && isReleased(bytes)) {
        if (isLate) throw new ReleasedError();
        go.fill(null, first);
        return false;
      }
      this.table[row + 2 * part + 1] = length;
      if (length > MOST_BYTES) this.#refuse(length);
    }
    return true;
  }

  /** All parts as one view of the buffer that they lie in, close together; null where they do not. */
  place(): Uint8Array | null {
    const span = this.#end - this.#start;
    if (!this.#isOne || this.#buffer === null || span > MOST_BYTES || span > 2 * this.bytes) return null;
    try {
      return new Uint8Array(this.#buffer, this.#start, span);
    } catch {
      throw new ReleasedError();
    }
  }

  /** Makes the offsets those in `place`. */
  *point(): Generator<undefined, void> {
    let at = 0;
    for (const go of this.#goes) {
      for (const part of go) {
        if (part !== null && this.table[at + 1] !== 0) this.table[at] = offsetOf(part) - this.#start;
        at += 2;
      }
      if (at < this.table.length) yield;
    }
  }

  /** Copies to `bytes` every part that stands nowhere before. */
  *copy(bytes: Uint8Array): Generator<undefined, void> {
    let at = 0;
    let next = 0;
    let done = 0;
    for (const go of this.#goes) {
      for (const part of go) {
        const length = this.table[at + 1]!;
        const isNew = length > 0 && this.table[at] === next;
        at += 2;
        if (part === null || !isNew) continue;
        if (length > GO_BYTES) yield* copyLarge(part, bytes, next, length);
        else {
          if (lengthOf(part) !== length) throw new ReleasedError();
          bytes.set(part, next);
        }
        next += length;
        done += length;
        if (done < GO_BYTES || at === this.table.length) continue;
        done = 0;
        yield;
      }
      // Nothing of it is needed any more.
      go.length = 0;
      if (at < this.table.length) yield;
    }
  }

  /** A part that is too large for a table: so is every batch that it is in. */
  #refuse(length: number): void {
    this.#isOne = false;
    this.bytes += length;
  }

  /** Writes where the part at `index` of `go` goes, and its length, to `at` in the table. */
  #note(go: readonly (Uint8Array | null)[], index: number, at: number): void {
    const { table } = this;
    const part = go[index]!;
    const length = table[at + 1]!;
    if (length === 0) return;
    if (this.#isOne) this.#locate(part, length);
    const before = index < PARTS ? null : go[index - PARTS]!;
    const above = at - TABLE_STRIDE;
    if (before !== null && table[above + 1] === length && isSame(before, part, length)) {
      table[at] = table[above]!;
      return;
    }
    if (length >= KNOWN_BYTES) {
      const known = this.#known.get(part);
      if (known !== undefined && table[known + 1] === length) {
        table[at] = table[known]!;
        return;
      }
      if (this.#known.size >= KNOWN_MOST) this.#known.clear();
      this.#known.set(part, at);
    }
    table[at] = this.bytes;
    this.bytes += length;
  }

  /** A view that needs no buffer of its own is not asked for it once it is known that they differ. */
  #locate(part: Uint8Array, length: number): void {
    const buffer = bufferOf(part);
    this.#buffer ??= buffer;
    this.#isOne = buffer === this.#buffer;
    const start = offsetOf(part);
    this.#start = Math.min(this.#start, start);
    this.#end = Math.max(this.#end, start + length);
  }
}

/** Whether two parts of `length` bytes are the same bytes; where it costs more to tell than to copy them, they are not. */
function isSame(one: Uint8Array, other: Uint8Array, length: number): boolean {
  if (one === other) return true;
  if (length < KNOWN_BYTES) return false;
  const offset = offsetOf(other);
  if (offset === 0 && length < BUFFER_BYTES) return false;
  return offsetOf(one) === offset && lengthOf(one) === length && bufferOf(one) === bufferOf(other);
}

/** Copies a part that would hold up the event loop. */
function* copyLarge(
  part: Uint8Array,
  bytes: Uint8Array,
  to: number,
  length: number,
): Generator<undefined, void> {
  for (let done = 0; done < length; done += GO_BYTES) {
    if (lengthOf(part) !== length) throw new ReleasedError();
    bytes.set(plainBytes(part).subarray(done, done + GO_BYTES), to + done);
    yield;
  }
}
