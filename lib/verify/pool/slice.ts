/** A slice while workers have it: which ranges are free, taken and done. */
import { type Params } from "../contract.ts";
import { DONE, FLAG, FREE, HINT, QUIET, REPORT, STATES, STOP, type SliceMessage } from "./protocol.ts";
import { sharedMemory } from "./shared.ts";
import type { Slot } from "./slots.ts";

export interface SliceOf {
  readonly batch: number;
  readonly scheme: string;
  readonly params: Params;
}

export class Slice {
  readonly id: number;
  /** The first item of the batch that is in it. */
  readonly from: number;
  readonly slot: Slot;
  readonly message: SliceMessage;
  /** True once a worker was lost that may still write into the slot. */
  lost = false;
  readonly #control: Int32Array;
  readonly #redone = new Set<number>();

  constructor(
    id: number,
    of: SliceOf,
    slot: Slot,
    span: { from: number; to: number; starts: readonly number[]; bytes: Uint8Array },
  ) {
    const { from, to, starts, bytes } = span;
    const words = STATES + starts.length - 1;
    const memory = sharedMemory((words + starts.length) * 4);
    this.id = id;
    this.from = from;
    this.slot = slot;
    this.#control = new Int32Array(memory, 0, words);
    this.message = {
      slice: id,
      batch: of.batch,
      scheme: of.scheme,
      params: of.params,
      bytes,
      table: slot.table,
      count: to - from,
      codes: slot.codes,
      control: this.#control,
      starts: new Uint32Array(memory, words * 4),
    };
    this.message.starts.set(starts);
  }

  get ranges(): number {
    return this.#control.length - STATES;
  }

  /** Whether every range is done. */
  get done(): boolean {
    return this.#states().every((_, range) => this.#state(range) === DONE);
  }

  /** Whether no worker has a range. */
  get quiet(): boolean {
    return this.#states().every((_, range) => this.#state(range) <= FREE);
  }

  get stopped(): boolean {
    return Atomics.load(this.#control, FLAG) === STOP;
  }

  /** From now on no worker takes a range. */
  stop(): void {
    Atomics.store(this.#control, FLAG, STOP);
  }

  /** A worker is lost: what it had is free again. Returns that. */
  free(worker: number): number[] {
    if (!this.stopped) Atomics.compareExchange(this.#control, FLAG, QUIET, REPORT);
    const ranges: number[] = [];
    for (const [range] of this.#states().entries()) {
      if (Atomics.compareExchange(this.#control, STATES + range, worker, FREE) !== worker) continue;
      this.lost = true;
      ranges.push(range);
    }
    Atomics.store(this.#control, HINT, 0);
    return ranges;
  }

  /** Notes that `ranges` took their worker with them. False where one of them did so before, and must not be tried again. */
  retry(ranges: readonly number[]): boolean {
    const again = ranges.every((range) => !this.#redone.has(range));
    for (const range of ranges) this.#redone.add(range);
    return again;
  }

  #states(): Int32Array {
    return this.#control.subarray(STATES);
  }

  #state(range: number): number {
    return Atomics.load(this.#control, STATES + range);
  }
}
