/** A row of a batch's table: whether its parts lie in the batch. The one place that decides it. */
import { TABLE_STRIDE, type PackedBatch } from "./contract.ts";

/** Bytes and table; of a slice or of a batch. */
export type Rows = Pick<PackedBatch, "bytes" | "table">;

/** Whether a part of `item` lies outside of the bytes, or there is no row for it. */
export function isOutside({ bytes: { length }, table }: Rows, item: number): boolean {
  const at = item * TABLE_STRIDE;
  // Numbers of 32 bits: their sums are exact.
  const inside =
    table[at]! + table[at + 1]! <= length &&
    table[at + 2]! + table[at + 3]! <= length &&
    table[at + 4]! + table[at + 5]! <= length;
  return !inside;
}
