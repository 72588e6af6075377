/**
 * Cuts the next slice from a batch: its table always into the slot's, its bytes only where they are not shared already. Copying goes in stretches, so that a
 * large batch does not hold up the event loop.
 */
import { CODE, TABLE_STRIDE, type PackedBatch } from "../contract.ts";
import { checkHeld } from "../held.ts";
import { itemNanos, type Cost } from "./cost.ts";
import { rangeStarts } from "./ranges.ts";
import { isOutside } from "../rows.ts";
import { SLICE_ITEMS, type Slot, type Slots } from "./slots.ts";
import type { Stretches } from "./stretches.ts";

/** What is copied in one stretch, at most: some hundred microseconds. */
const STEP_ITEMS = 1_024;
const STEP_BYTES = 512 * 1024;
const STEP_NANOS = 1_000_000;
/** Gaps between parts that are copied along rather than each part by itself. */
const SLACK_BYTES = 4_096;
/** An offset that lies outside of every slice: for an item that lies outside of its batch. */
const OUTSIDE = 0xffff_ffff;

export interface Cut {
  /** The item after the last of the slice. */
  readonly to: number;
  readonly bytes: Uint8Array;
  /** Where in the slice its ranges begin, and the end of the last one. */
  readonly starts: readonly number[];
}

export interface Cutter {
  readonly slots: Slots;
  readonly stretches: Stretches;
  /** Whether the batch is over, and nobody needs the rest. */
  readonly ended: () => boolean;
  /** How many bytes the batch had when it came. */
  readonly length: number;
  readonly cost: Cost;
  /** How many workers will share the slice. */
  readonly workers: number;
}

/** Whether other threads can read the bytes where they are. */
export function isShared(bytes: Uint8Array): boolean {
  return bytes.buffer instanceof SharedArrayBuffer;
}

/** Fills `slot` with the items from `from` on, as many as fit. Null where the batch has ended meanwhile. */
export async function cut(slot: Slot, batch: PackedBatch, from: number, by: Cutter): Promise<Cut | null> {
  const copy = isShared(batch.bytes) ? null : new Copy(slot, batch, by.slots);
  const end = Math.min(batch.count, from + SLICE_ITEMS);
  // What nobody writes must not be the verdict of another batch.
  slot.codes.fill(CODE.signature);
  let item = from;
  let nanos = 0;
  let starts: number[] | null = null;
  while (starts === null) {
    const wait = by.stretches.enter(STEP_NANOS);
    if (wait !== null) await wait;
    checkHeld(batch, by.length);
    const start = Bun.nanoseconds();
    let full = false;
    if (!by.ended()) {
      const step = survey(batch, item, Math.min(end, item + STEP_ITEMS), by.cost);
      if (copy === null) {
        const entries = batch.table.subarray(item * TABLE_STRIDE, step.to * TABLE_STRIDE);
        slot.table.set(entries, (item - from) * TABLE_STRIDE);
      } else {
        full = !copy.fits(step);
        if (!full) copy.add(step, item, item - from);
      }
      if (!full) {
        item = step.to;
        nanos += step.nanos;
      }
      if (full || item === end) {
        const rows = { bytes: copy?.bytes ?? batch.bytes, table: slot.table };
        starts = rangeStarts(rows, item - from, nanos, by.cost, by.workers);
      }
    }
    by.stretches.leave(STEP_NANOS, Bun.nanoseconds() - start);
    if (copy !== null) await copy.rest(by);
    if (by.ended()) return null;
  }
  return { to: item, bytes: copy?.bytes ?? batch.bytes, starts };
}

interface Step {
  readonly to: number;
  /** The lengths of all parts of all its items, bytes. */
  readonly partBytes: number;
  /** What its items take to verify. */
  readonly nanos: number;
  /** Where the parts that lie within the batch begin and end. */
  readonly low: number;
  readonly high: number;
}

/** As many items from `from` on as one stretch can take, one at least. */
function survey(batch: PackedBatch, from: number, end: number, cost: Cost): Step {
  const { table } = batch;
  let low = Infinity;
  let high = 0;
  let partBytes = 0;
  let nanos = 0;
  let to = from;
  for (; to < end; to++) {
    if (!isOutside(batch, to)) {
      const at = to * TABLE_STRIDE;
      const own = table[at + 1]! + table[at + 3]! + table[at + 5]!;
      if (to > from && partBytes + own > STEP_BYTES) break;
      partBytes += own;
      for (let part = at; part < at + TABLE_STRIDE; part += 2) {
        low = Math.min(low, table[part]!);
        high = Math.max(high, table[part]! + table[part + 1]!);
      }
    }
    nanos += itemNanos(batch, to, cost);
  }
  return { to, partBytes, nanos, low: Math.min(low, high), high };
}

/** The bytes of one slice on their way into shared memory. */
class Copy {
  readonly #slot: Slot;
  readonly #batch: PackedBatch;
  readonly #slots: Slots;
  #bytes: Uint8Array | null = null;
  #used = 0;
  /** What a single large item has still to be copied: source, destination, length. */
  readonly #rest: [number, number, number][] = [];

  constructor(slot: Slot, batch: PackedBatch, slots: Slots) {
    this.#slot = slot;
    this.#batch = batch;
    this.#slots = slots;
  }

  get bytes(): Uint8Array {
    return (this.#bytes ??= this.#slots.room(this.#slot, 0));
  }

  /** The first step always fits. */
  fits(step: Step): boolean {
    return this.#bytes === null || this.#used + need(step) <= this.#bytes.length;
  }

  /** Copies the items of a step; `first` is the first of them in the batch and `index` in the slice. */
  add(step: Step, first: number, index: number): void {
    this.#bytes ??= this.#slots.room(this.#slot, need(step));
    const { table } = this.#slot;
    const { table: given } = this.#batch;
    const together = step.high - step.low <= step.partBytes + SLACK_BYTES;
    const shift = this.#used - step.low;
    if (together) this.#take(step.low, step.high - step.low);
    for (let item = first, at = index * TABLE_STRIDE; item < step.to; item++, at += TABLE_STRIDE) {
      const source = item * TABLE_STRIDE;
      if (isOutside(this.#batch, item)) {
        table.fill(OUTSIDE, at, at + TABLE_STRIDE);
        continue;
      }
      for (let part = 0; part < TABLE_STRIDE; part += 2) {
        const offset = given[source + part]!;
        const length = given[source + part + 1]!;
        table[at + part] = together ? offset + shift : this.#take(offset, length);
        table[at + part + 1] = length;
      }
    }
  }

  /** Copies what is left of a single item that was too large for one stretch. */
  async rest(by: Cutter): Promise<void> {
    const { stretches, ended } = by;
    for (let next = this.#rest.shift(); next !== undefined; next = this.#rest.shift()) {
      const [from, to, length] = next;
      for (let done = 0; done < length && !ended(); done += STEP_BYTES) {
        const wait = stretches.enter(STEP_NANOS);
        if (wait !== null) await wait;
        // Whoever was told that it is over may use the memory again.
        if (ended()) return;
        checkHeld(this.#batch, by.length);
        const start = Bun.nanoseconds();
        const end = Math.min(length, done + STEP_BYTES);
        this.#copy(from + done, to + done, end - done);
        stretches.leave(STEP_NANOS, Bun.nanoseconds() - start);
      }
    }
  }

  /** Takes room for some bytes and copies them, or puts that off where there are many. Returns where they are. */
  #take(offset: number, length: number): number {
    const at = this.#used;
    this.#used += length;
    if (length > STEP_BYTES + SLACK_BYTES) this.#rest.push([offset, at, length]);
    else this.#copy(offset, at, length);
    return at;
  }

  #copy(offset: number, at: number, length: number): void {
    this.#bytes!.set(this.#batch.bytes.subarray(offset, offset + length), at);
  }
}

/** What the parts of a step take: together with their gaps, or each by itself. */
function need({ low, high, partBytes }: Step): number {
  return high - low <= partBytes + SLACK_BYTES ? high - low : partBytes;
}
