/**
 * Memory: where bytes land. Kinds of memory and the pool that cuts buffers from them.
 *
 * What lives here: the `Buffer` and `BufferAllocator` contract. May import: ffi, errors.
 * Start at `buffer.ts`.
 */
export type { Buffer, BufferAllocator } from "./buffer.ts";
