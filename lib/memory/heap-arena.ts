/**
 * Reusable heap memory for messages that arrive in pieces. Fresh memory costs a page fault for every 4 KiB, which is as much as
 * copying into it, and each new large `ArrayBuffer` brings the next garbage collection closer.
 *
 * The arena is one allocation for the life of the process, cut into slots of a power of two. A lease is an `ArrayBuffer` of its
 * own over a slot. Giving it back detaches it, so that a view that somebody kept has length 0 and never shows the next owner's
 * bytes. A lease that is dropped without being given back frees its slot when it is collected: then no view of it is left.
 */
import { ptr, toArrayBuffer, type Pointer } from "bun:ffi";

const SLOT_BYTES_MIN = 16 * 1024;
const SLOT_BYTES_MAX = 4 * 1024 * 1024;

export class HeapArena {
  /** Bytes of all slots together; allocated at the first lease. */
  readonly bytes: number;
  private memory: Uint8Array | null = null;
  private base = 0;
  /** Everything from here on has not been cut into slots yet. */
  private uncut = 0;
  private readonly free = new Map<number, number[]>();
  private readonly leases = new WeakMap<ArrayBufferLike, number>();
  private readonly dropped = new FinalizationRegistry<{ size: number; at: number }>(({ size, at }) => {
    this.slots(size).push(at);
  });

  constructor(bytes: number) {
    this.bytes = bytes;
  }

  /** Memory for `bytes`, with arbitrary contents: a slot, or plain memory where a slot does not fit or none is free. */
  take(bytes: number): Uint8Array {
    if (bytes < SLOT_BYTES_MIN || bytes > SLOT_BYTES_MAX) return new Uint8Array(bytes);
    const size = slotSize(bytes);
    const at = this.slots(size).pop() ?? this.cut(size);
    if (at < 0) return new Uint8Array(bytes);
    const lease = toArrayBuffer((this.base + at) as Pointer, 0, bytes);
    this.leases.set(lease, at);
    this.dropped.register(lease, { size, at }, lease);
    return new Uint8Array(lease);
  }

  /** Takes back what `take` gave; every view of it is empty from now on. Plain memory is left to the collector. */
  give(memory: Uint8Array): void {
    const lease = memory.buffer as ArrayBuffer;
    const at = this.leases.get(lease);
    if (at === undefined) return;
    const size = slotSize(lease.byteLength);
    this.leases.delete(lease);
    this.dropped.unregister(lease);
    lease.transfer(0);
    this.slots(size).push(at);
  }

  private slots(size: number): number[] {
    let slots = this.free.get(size);
    if (slots === undefined) this.free.set(size, (slots = []));
    return slots;
  }

  private cut(size: number): number {
    if (this.uncut + size > this.bytes) return -1;
    if (this.memory === null) {
      this.memory = new Uint8Array(new ArrayBuffer(this.bytes));
      this.base = ptr(this.memory);
    }
    const at = this.uncut;
    this.uncut += size;
    return at;
  }
}

/** The next power of two. */
function slotSize(bytes: number): number {
  return 2 ** Math.ceil(Math.log2(bytes));
}

/** The arena of the process. It is never freed, because a view of it may outlive whoever took it. */
export const heapArena = new HeapArena(16 * 1024 * 1024);
