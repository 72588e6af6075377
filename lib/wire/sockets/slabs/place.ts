/** Memory that the kernel can be told to put bytes into: a slab, or plain memory of the heap where a slab would not do. */
import { ptr } from "bun:ffi";
import { heapArena } from "../../../memory/index.ts";

const ARENA_BYTES_MIN = 16 * 1024;

export interface Place {
  readonly bytes: Uint8Array;
  /** Of its first byte. */
  readonly address: number;
  /** `bytes.length`. */
  readonly size: number;
  release(): void;
}

/**
 * Where the beginning of a large frame waits until more of it has come, and where everything goes that nobody will see: so that the
 * pool's memory is never held by somebody who waits for more of it.
 */
export class HeapPlace implements Place {
  readonly bytes: Uint8Array;
  readonly address: number;
  readonly size: number;

  constructor(bytes: number) {
    // The arena's smallest slot is larger; and a small typed array moves when its buffer is first asked for, so it has one from the start.
    this.bytes = bytes < ARENA_BYTES_MIN ? new Uint8Array(new ArrayBuffer(bytes)) : heapArena.take(bytes);
    this.address = ptr(this.bytes);
    this.size = bytes;
  }

  release(): void {
    heapArena.give(this.bytes);
  }
}
