/** Batches: the check that something is a packed batch, and what every batch must keep to. Lists become packed ones in `packing.ts`. */
import { isUint32Array, isUint8Array } from "node:util/types";
import { ConfigError, LimitError } from "../errors/index.ts";
import { TABLE_STRIDE, type PackedBatch } from "./contract.ts";
import { isReleased, lengthOf, plainBytes, plainTable } from "./views.ts";

/** What a table can address: 4 GiB less one byte. */
export const MOST_BYTES = 0xffff_ffff;
/** The answer is one array, which cannot be made in steps: one of so many entries takes some 4 ms. */
export const MOST_ITEMS = 2 ** 20;

const NO_BATCH = "a batch is a list of items or a packed batch";

/** Whether `batch` is a list. Throws `ConfigError` where it does not even say that. */
export function isList(batch: unknown): batch is readonly unknown[] {
  try {
    return Array.isArray(batch);
  } catch (cause) {
    throw new ConfigError("the batch cannot be read", { cause });
  }
}

/** Throws `ConfigError` where `count` is no number of items, and `LimitError` above `MOST_ITEMS`. */
export function checkCount(what: string, count: unknown): number {
  if (typeof count !== "number" || !Number.isSafeInteger(count) || count < 0)
    throw new ConfigError(
      `${what} is ${typeof count === "number" ? count : typeof count}; it is a whole number, 0 or more`,
    );
  if (count > MOST_ITEMS)
    throw new LimitError(`a batch has at most ${MOST_ITEMS} items; this one has ${count}`);
  return count;
}

/** Throws `LimitError` where a table cannot address so many bytes. */
export function checkBytes(bytes: number): void {
  if (bytes > MOST_BYTES)
    throw new LimitError(`a batch has at most ${MOST_BYTES} bytes, 4 GiB less one; this one has ${bytes}`);
}

/**
 * `batch` with views of its bytes and of its table that nobody else has a hand in. Throws `ConfigError` where it is not a packed batch, or was released
 * already, `LimitError` where it is too large. What is wrong with single items is no business of this.
 */
export function checkPacked(batch: unknown): PackedBatch {
  if (typeof batch !== "object" || batch === null) throw new ConfigError(NO_BATCH);
  const { bytes, table, count: given } = fieldsOf(batch);
  if (!isUint8Array(bytes)) throw new ConfigError("a packed batch has its bytes in a Uint8Array");
  if (!isUint32Array(table)) throw new ConfigError("a packed batch has its table in a Uint32Array");
  const count = checkCount("the count of a packed batch", given);
  // Released memory would make every item of the batch malformed, which is no verdict on it.
  if (isReleased(bytes)) throw new ConfigError("the bytes of this packed batch have been released");
  if (isReleased(table)) throw new ConfigError("the table of this packed batch has been released");
  checkBytes(lengthOf(bytes));
  const entries = count * TABLE_STRIDE;
  if (lengthOf(table) < entries)
    throw new ConfigError(
      `a packed batch of ${count} items has ${entries} entries in its table, this one ${lengthOf(table)}`,
    );
  return { bytes: plainBytes(bytes), table: plainTable(table, entries), count };
}

function fieldsOf(batch: object): Record<keyof PackedBatch, unknown> {
  try {
    const { bytes, table, count } = batch as Record<keyof PackedBatch, unknown>;
    return { bytes, table, count };
  } catch (cause) {
    throw new ConfigError("the packed batch cannot be read", { cause });
  }
}
