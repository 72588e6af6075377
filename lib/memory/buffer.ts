/** What a managed buffer and its allocator look like to everyone, whatever memory they are cut from. */
import type { MemoryKind } from "./kind.ts";

/** Who may write a buffer's memory now. Exactly one at a time; the others wait for a hand-over. */
export type Owner = "cpu" | "gpu" | "nic";

/**
 * One slab of managed memory.
 *
 * Ownership: whoever got the buffer owns its bytes until `release()`; after that the allocator may hand the same memory
 * to somebody else.
 */
export interface Buffer {
  /**
   * The memory itself, exactly as long as was asked for. Throws `ClosedError` after `release()`.
   *
   * Of a received message in a GPU's own memory, which the CPU cannot reach, it is a copy on the host, made on first use and again on the first use
   * after a hand-over: what is written there never reaches the GPU. Throws `ShimError` where the driver fails to copy.
   */
  readonly bytes: Uint8Array;
  /** The address that the device knows this memory by, or null where there is no device. */
  readonly devicePtr: bigint | null;
  /** Who may write it now. */
  readonly owner: Owner;
  /**
   * The fence between two owners: when it has returned, or its promise has resolved, `to` sees what the owner before wrote. A
   * promise only where the runtime makes one; until it resolves nobody may touch the memory. In debug mode the views
   * that the CPU took are empty once it has handed over. Throws or rejects with `OwnerError` while another hand-over is
   * going on, `NotAvailableError` where `to` cannot reach this kind of memory, and whatever the device fails with: the
   * owner is then as before.
   */
  handOver(to: Owner): void | Promise<void>;
  /** Gives the memory back. A second call does nothing. */
  release(): void;
}

export interface BufferAllocator {
  /** Bytes that this allocator may hand out in all; 0 where it hands out none, `Infinity` where there is no bound. */
  readonly poolBytes: number;
  /**
   * Waits while the pool is full until a buffer is released, in order of asking; fails at once when `size` can never fit.
   * Where the transport has no managed memory it rejects with `NotAvailableError`, so that the caller uses the heap.
   */
  allocBuffer(size: number, options?: { signal?: AbortSignal }): Promise<Buffer>;
  /**
   * `allocBuffer` for hot paths: the buffer if that needs no waiting, else null. Never overtakes a call that waits. Throws what
   * `allocBuffer` would reject with.
   */
  tryAllocBuffer(size: number): Buffer | null;
}

/**
 * A buffer that a pool cut from unified memory. It starts out owned by the CPU, with arbitrary contents.
 *
 * Everything but `owner` and `release` throws `ClosedError` after `release()`. Views taken before are another matter: in debug mode
 * (`ZAP_DEBUG=1`) they are empty from then on. Otherwise that would cost more than the buffer: a view that was kept shows
 * whatever the next owner writes, and is empty once the region has gone back to the runtime. It never reads freed memory.
 */
export interface SlabBuffer extends Buffer {
  readonly kind: MemoryKind;
  /** Bytes that were asked for: the length of `bytes`. */
  readonly size: number;
  /** Where the CPU finds the memory; 0 where it cannot reach it. A multiple of 256 wherever the size allows sharing a region. */
  readonly address: number;
  /** What the shim knows the region by that the buffer lies in, for kernels; 0 on the heap. */
  readonly regionHandle: number;
  /** Where in that region the buffer starts, in bytes. 4 GiB or more only where many have been registered in one piece. */
  readonly regionOffset: number;
  /**
   * The device reads the memory until `returned` is called; a release takes effect only then. Several may read at once. `idle` resolves
   * after that, never rejects, and may be shared by many buffers. Throws `OwnerError` during a hand-over.
   */
  lend(idle: Promise<void>): void;
  /** Ends one loan. With a `fault` nobody knows whether the device still reads: then nobody gets the memory again. */
  returned(fault: Error | null): void;
  /** Whoever has the memory after this holder would not be alone with it: when it is released, nobody gets it again. */
  spoil(error: Error): void;
  /**
   * Gives the memory back; a second call does nothing. What the GPU owns goes back after a fence. What a NIC owns has to be handed
   * over first, when its queue pair has let go of it: in debug mode this throws `OwnerError` otherwise.
   */
  release(): void;
}
