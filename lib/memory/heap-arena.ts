/**
 * Reusable heap memory for messages that arrive in pieces. Fresh memory costs a page fault for every 4 KiB, which is as much as
 * copying into it, and each new large `ArrayBuffer` brings the next garbage collection closer.
 *
 * The arena is one allocation for the life of the process, cut into slots of a power of two. A lease is an `ArrayBuffer` of its
 * own over a slot. Giving it back detaches it, so that a view that somebody kept has length 0 and never shows the next owner's
 * bytes. A lease that never comes back, or that its holder has detached (by transferring it to a worker, say), costs its slot for
 * good: somebody may still see those bytes, so nobody else may get them.
 */
import { ptr, toArrayBuffer, type Pointer } from "bun:ffi";

const SLOT_BYTES_MIN = 16 * 1024;
const SLOT_BYTES_MAX = 4 * 1024 * 1024;

interface Slot {
  readonly at: number;
  readonly size: number;
}

export class HeapArena {
  /** Bytes of all slots together; allocated at the first lease. */
  readonly bytes: number;
  private memory: Uint8Array | null = null;
  private base = 0;
  /** Everything from here on has not been cut into slots yet. */
  private uncut = 0;
  private readonly free = new Map<number, Slot[]>();
  private readonly leases = new WeakMap<ArrayBufferLike, Slot>();

  constructor(bytes: number) {
    this.bytes = bytes;
  }

  /** Memory for `bytes`, with arbitrary contents: a slot, or plain memory where a slot does not fit or none is free. */
  take(bytes: number): Uint8Array {
    if (bytes < SLOT_BYTES_MIN || bytes > SLOT_BYTES_MAX) return new Uint8Array(bytes);
    const size = 2 ** Math.ceil(Math.log2(bytes));
    const slot = this.free.get(size)?.pop() ?? this.cut(size);
    if (slot === null) return new Uint8Array(bytes);
    const lease = toArrayBuffer((this.base + slot.at) as Pointer, 0, bytes);
    this.leases.set(lease, slot);
    return new Uint8Array(lease);
  }

  /** Received messages that lie in the arena are taken back one at a time; they are no managed buffers. */
  readonly messages = {
    letGo: (memory: Uint8Array): void => this.give(memory),
    bufferOf: (): null => null,
    revive: (memory: Uint8Array): Uint8Array => memory,
    strict: false,
  };

  /** Takes back what `take` gave; every view of it is empty from now on. Plain memory is left to the collector. */
  give(memory: Uint8Array): void {
    const lease = memory.buffer as ArrayBuffer;
    const slot = this.leases.get(lease);
    if (slot === undefined) return;
    this.leases.delete(lease);
    if (lease.detached) return;
    lease.transfer(0);
    // One that is pinned (by a write that still runs, say) is copied, and stays what it was.
    if (!lease.detached) return;
    const same = this.free.get(slot.size);
    if (same === undefined) this.free.set(slot.size, [slot]);
    else same.push(slot);
  }

  private cut(size: number): Slot | null {
    if (this.uncut + size > this.bytes) return null;
    if (this.memory === null) {
      this.memory = new Uint8Array(new ArrayBuffer(this.bytes));
      this.base = ptr(this.memory);
    }
    const slot = { at: this.uncut, size };
    this.uncut += size;
    return slot;
  }
}

/** The arena of the process. It is never freed, because a view of it may outlive whoever took it. */
export const heapArena = new HeapArena(16 * 1024 * 1024);
