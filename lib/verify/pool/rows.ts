/** A row of a batch's table, as far as the pool looks at it. */
import { TABLE_STRIDE, type PackedBatch } from "../contract.ts";

/** Bytes and table; of a slice or of a batch. */
export type Rows = Pick<PackedBatch, "bytes" | "table">;

/** Whether a part of `item` lies outside of the bytes: nothing of it is copied, and it costs next to nothing. So does one that there is no row for. */
export function isOutside({ bytes: { length }, table }: Rows, item: number): boolean {
  const at = item * TABLE_STRIDE;
  const inside =
    table[at]! + table[at + 1]! <= length &&
    table[at + 2]! + table[at + 3]! <= length &&
    table[at + 4]! + table[at + 5]! <= length;
  return !inside;
}
