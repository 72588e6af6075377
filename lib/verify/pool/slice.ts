/** A slice while workers have it: which ranges are free, taken and done. */
import { type Params } from "../contract.ts";
import { DONE, FLAG, FREE, HINT, QUIET, REPORT, STATES, STOP, type SliceMessage } from "./protocol.ts";
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
    span: { from: number; to: number; rangeItems: number; bytes: Uint8Array },
  ) {
    const { from, to, rangeItems, bytes } = span;
    const count = to - from;
    const ranges = Math.ceil(count / rangeItems);
    this.id = id;
    this.from = from;
    this.slot = slot;
    this.#control = new Int32Array(new SharedArrayBuffer((STATES + ranges) * 4));
    this.message = {
      slice: id,
      batch: of.batch,
      scheme: of.scheme,
      params: of.params,
      bytes,
      table: slot.table,
      count,
      codes: slot.codes,
      control: this.#control,
      rangeItems,
    };
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

  /**
   * A worker is lost: the range that it had is free again. Returns false where that range was lost once before, and must not be tried again.
   */
  free(worker: number): boolean {
    if (!this.stopped) Atomics.compareExchange(this.#control, FLAG, QUIET, REPORT);
    let again = true;
    for (const [range] of this.#states().entries()) {
      if (this.#state(range) !== worker) continue;
      this.lost = true;
      again &&= !this.#redone.has(range);
      this.#redone.add(range);
      Atomics.store(this.#control, STATES + range, FREE);
    }
    Atomics.store(this.#control, HINT, 0);
    return again;
  }

  #states(): Int32Array {
    return this.#control.subarray(STATES);
  }

  #state(range: number): number {
    return Atomics.load(this.#control, STATES + range);
  }
}
