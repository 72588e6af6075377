/**
 * Memory: where bytes land. Kinds of memory and the pool that cuts buffers from them.
 *
 * What lives here: the `Buffer` and `BufferAllocator` contract (`buffer.ts`), reusable heap memory
 * (`heap-arena.ts`), the size of the pool (`pool-bytes.ts`).
 * May import: ffi, errors.
 * Start at `buffer.ts`.
 */
export type { Buffer, BufferAllocator } from "./buffer.ts";
export { umaPoolBytes } from "./pool-bytes.ts";
export { HeapArena, heapArena } from "./heap-arena.ts";
