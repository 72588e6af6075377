/** The shared memory for slices: a fixed number of slots, used again and again, so that the garbage collector is not what bounds it. */
import { TABLE_STRIDE } from "../contract.ts";

/** A slice has no more items than this. */
export const SLICE_ITEMS = 16_384;
const SLOTS = 8;

export interface Slot {
  readonly table: Uint32Array;
  readonly codes: Uint8Array;
  /** Room for the copy of a slice; made when it is first needed. */
  bytes: Uint8Array | null;
}

export class Slots {
  /** What fits into the copy of one slice. */
  readonly sliceBytes: number;
  readonly #free: Slot[] = [];
  readonly #waiting: ((slot: Slot) => void)[] = [];
  #out = 0;

  constructor(poolBytes: number) {
    this.sliceBytes = Math.floor(poolBytes / SLOTS);
  }

  /** How many slots are in use. */
  get out(): number {
    return this.#out;
  }

  /** Waits in line for a slot. */
  take(): Promise<Slot> {
    if (this.#out === SLOTS) return new Promise((resolve) => this.#waiting.push(resolve));
    this.#out += 1;
    return Promise.resolve(this.#free.pop() ?? freshSlot());
  }

  /** Gives a slot back that nobody reads or writes any more; `lost` where that is not sure, and its memory must not be used again. */
  give(slot: Slot, lost: boolean): void {
    const next = this.#waiting.shift();
    const usable = lost ? null : slot;
    if (next !== undefined) {
      next(usable ?? freshSlot());
      return;
    }
    this.#out -= 1;
    if (usable !== null) this.#free.push(usable);
  }

  /** Memory for the bytes of a slice in `slot`: its own, or more where a single item does not fit there. */
  room(slot: Slot, atLeast: number): Uint8Array {
    if (atLeast > this.sliceBytes) return new Uint8Array(new SharedArrayBuffer(atLeast));
    return (slot.bytes ??= new Uint8Array(new SharedArrayBuffer(this.sliceBytes)));
  }

  /** Lets go of all memory that is not in use. */
  forget(): void {
    this.#free.length = 0;
  }
}

function freshSlot(): Slot {
  return {
    table: new Uint32Array(new SharedArrayBuffer(SLICE_ITEMS * TABLE_STRIDE * 4)),
    codes: new Uint8Array(new SharedArrayBuffer(SLICE_ITEMS)),
    bytes: null,
  };
}
