/** The shared memory for slices: a fixed number of slots, used again and again, so that the garbage collector is not what bounds it. */
import { TABLE_STRIDE } from "../contract.ts";
import { sharedMemory } from "./shared.ts";

/** A slice has no more items than this. */
export const SLICE_ITEMS = 16_384;
const SLOTS = 8;

export interface Slot {
  readonly table: Uint32Array;
  readonly codes: Uint8Array;
  /** Room for the copy of a slice; made when it is first needed. */
  bytes: Uint8Array | null;
  /** The same for a single item that does not fit there; kept while there is one after the other. */
  large: Uint8Array | null;
}

interface Waiting {
  readonly resolve: (slot: Slot) => void;
  readonly reject: (error: unknown) => void;
}

export class Slots {
  /** What fits into the copy of one slice. */
  readonly sliceBytes: number;
  readonly #free: Slot[] = [];
  readonly #waiting: Waiting[] = [];
  #out = 0;

  constructor(poolBytes: number) {
    this.sliceBytes = Math.floor(poolBytes / SLOTS);
  }

  /** How many slots are in use. */
  get out(): number {
    return this.#out;
  }

  /** Waits in line for a slot. Rejects with `ERR_ZAP_VERIFY` where there is no memory for one. */
  async take(): Promise<Slot> {
    if (this.#out === SLOTS) return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
    const slot = this.#free.pop() ?? freshSlot();
    this.#out += 1;
    return slot;
  }

  /** Gives a slot back that nobody reads or writes any more; `lost` where that is not sure, and its memory must not be used again. */
  give(slot: Slot, lost: boolean): void {
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      try {
        return next.resolve(lost ? freshSlot() : slot);
      } catch (error) {
        next.reject(error);
      }
    }
    this.#out -= 1;
    if (!lost) this.#free.push(slot);
    if (this.#out === 0) for (const each of this.#free) each.large = null;
  }

  /** Memory for the bytes of a slice in `slot`: its own, or more where a single item does not fit there. */
  room(slot: Slot, atLeast: number): Uint8Array {
    if (atLeast > this.sliceBytes) {
      if ((slot.large?.length ?? 0) < atLeast) {
        // Each memory is twice the one before it, at least: what waits for the garbage collector is no more than what is in use. Pages nobody writes to take nothing.
        slot.large = null;
        slot.large = new Uint8Array(sharedMemory(Math.min(2 ** Math.ceil(Math.log2(atLeast)), 0xffff_ffff)));
      }
      return slot.large!.subarray(0, atLeast);
    }
    slot.large = null;
    return (slot.bytes ??= new Uint8Array(sharedMemory(this.sliceBytes)));
  }

  /** Lets go of all memory that is not in use. */
  forget(): void {
    this.#free.length = 0;
  }
}

function freshSlot(): Slot {
  return {
    table: new Uint32Array(sharedMemory(SLICE_ITEMS * TABLE_STRIDE * 4)),
    codes: new Uint8Array(sharedMemory(SLICE_ITEMS)),
    bytes: null,
    large: null,
  };
}
