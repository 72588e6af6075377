/**
 * Memory: where bytes land. Kinds of memory and the pool that cuts buffers from them.
 *
 * What lives here: the `Buffer` and `BufferAllocator` contract (`buffer.ts`), and reusable heap memory (`heap-arena.ts`).
 * May import: ffi, errors.
 * Start at `buffer.ts`.
 */
export type { Buffer, BufferAllocator } from "./buffer.ts";
export { HeapArena, heapArena } from "./heap-arena.ts";
