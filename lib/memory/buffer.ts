/** What a managed buffer and its allocator look like to everyone, whatever memory they are cut from. */

/**
 * One slab of managed memory.
 *
 * Ownership: whoever got the buffer owns its bytes until `release()`; after that the allocator may hand the same memory
 * to somebody else.
 */
export interface Buffer {
  /** The memory itself, exactly as long as was asked for. Throws `ClosedError` after `release()`. */
  readonly bytes: Uint8Array;
  /** The address that the device knows this memory by, or null where there is no device. */
  readonly devicePtr: bigint | null;
  /** Gives the memory back. A second call does nothing. */
  release(): void;
}

export interface BufferAllocator {
  /** Bytes that this allocator may hand out in all; 0 where it hands out none. */
  readonly poolBytes: number;
  /**
   * Waits while the pool is full until a buffer is released, in order of asking; fails at once when `size` can never fit.
   * Where the transport has no managed memory it rejects with `NotAvailableError`, so that the caller uses the heap.
   */
  allocBuffer(size: number, options?: { signal?: AbortSignal }): Promise<Buffer>;
}
