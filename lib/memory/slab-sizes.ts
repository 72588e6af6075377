/** The sizes that slabs come in. */

/** Bytes of the slabs of each order; a slab of one order is cut into slabs of the order below. */
export const SLAB_BYTES: readonly number[] = [256, 1_024, 4_096, 16_384, 65_536, 1_048_576];

/** The order of a slab that is a region of its own. */
export const ONE_OFF = -1;

/** Most bytes of one buffer: what a 32-bit length in the shims can say, less the page that the heap aligns with. */
export const BUFFER_BYTES_MAX = 4 * 1024 ** 3 - 64 * 1024;

/** The order of the smallest slab that holds `size` bytes, or `ONE_OFF` where none does. */
export function orderOf(size: number): number {
  if (size <= 4_096) return size > 1_024 ? 2 : size > 256 ? 1 : 0;
  if (size <= 65_536) return size > 16_384 ? 4 : 3;
  return size <= 1_048_576 ? 5 : ONE_OFF;
}
