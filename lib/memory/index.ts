/**
 * Memory: where bytes land. Kinds of memory and the pool that cuts buffers from them.
 *
 * What lives here:
 * - `buffer.ts`: what a buffer and its allocator look like to everyone.
 * - `kind.ts`: what a kind of memory is; `heap-kind.ts`, `device-kind.ts`, `hugepage-kind.ts`: the kinds. Beside the second
 *   `device-info.ts` (what a device says of itself), `device-region.ts` (a piece of its memory), `device-own-kind.ts` (that which the CPU cannot reach) and `spans.ts` (which headers it is
 *   to check); beside the third `free-pages.ts` (what of its area is free).
 * - `slab-pool.ts`: the pool. Below it `slab-store.ts` (regions, and what may be taken from the kind), `slab-tree.ts` (free slabs,
 *   splitting, merging), `slab-region.ts` (a slab) and `slab-sizes.ts` (the sizes that there are); beside it `slab-buffer.ts` (a slab
 *   in somebody's hands), `owned.ts` (whose turn it is to write), `slab-waiters.ts`, `slab-leaks.ts` and `slab-end.ts` (closing).
 * - `pool-bytes.ts`, `device-settings.ts`, `debug-mode.ts`: what an operator sets.
 * - `heap-arena.ts`: reusable heap memory for messages, where there is no managed memory.
 *
 * May import: ffi, settings, errors.
 * Start at `buffer.ts`, then `slab-pool.ts`.
 */
export type { Buffer, BufferAllocator, Owner, SlabBuffer } from "./buffer.ts";
export type { KindName, MemoryKind, Reach, Region } from "./kind.ts";
export { heapKind } from "./heap-kind.ts";
export { OwnedMemory } from "./owned.ts";
export { isSlabBuffer } from "./slab-buffer.ts";
export { POISON, SlabPool } from "./slab-pool.ts";
export type { PoolOptions, PoolStats } from "./slab-pool.ts";
export type { PoolCloseOptions, PoolReport } from "./slab-end.ts";
export { leakText } from "./slab-leaks.ts";
export type { LeakReport } from "./slab-leaks.ts";
export { debugMode } from "./debug-mode.ts";
export { umaPoolBytes } from "./pool-bytes.ts";
export { HeapArena, heapArena } from "./heap-arena.ts";
export { deviceLimits, DeviceMemory, openDeviceMemory, shimOf } from "./device-kind.ts";
export type { DeviceKindName, DeviceOptions } from "./device-kind.ts";
export { DeviceOwnKind } from "./device-own-kind.ts";
export { DeviceRegion } from "./device-region.ts";
export { deviceBehind, hugepageKind, lockedKind } from "./hugepage-kind.ts";
export type { HugepageArea } from "./hugepage-kind.ts";
export type { DeviceInfo } from "./device-info.ts";
export { cudaDeviceIndex, deviceMillis } from "./device-settings.ts";
export type { HeaderSpan, VerifySpans } from "./spans.ts";
