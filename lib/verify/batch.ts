/** Batches: a list of items made into one piece of memory with a table, and the check that something is such a batch. */
import { isUint32Array, isUint8Array } from "node:util/types";
import { ConfigError, LimitError } from "../errors/index.ts";
import { TABLE_STRIDE, type Item, type PackedBatch } from "./contract.ts";

/** What a table can address. */
const MOST_BYTES = 0xffff_ffff;
/** Offset and length of a part that is no bytes: outside of any batch. */
const NOWHERE = 0xffff_ffff;
/** Items, and bytes, that are looked at or copied in one go. */
const GO_ITEMS = 2_048;
const GO_BYTES = 1024 * 1024;
/** Below this a batch is not worth a `SharedArrayBuffer`. */
const SHARED_BYTES = 64 * 1024;

export interface PackOptions {
  /** True: the bytes and the table lie in shared memory, where other threads read them without a copy. Default: false. */
  readonly shared?: boolean | undefined;
}

/**
 * `items` as a packed batch. Their parts are copied, unless they lie close together in one buffer already and `shared` is not asked
 * for: then the batch is a view of that, and the bytes must stay as they are until it has been verified. An item with a part that is no
 * `Uint8Array` becomes an item that is malformed. Throws `ConfigError` where `items` is no array, `LimitError` above 4 GiB.
 */
export function pack(items: readonly Item[], options: PackOptions = {}): PackedBatch {
  const steps = packing(items, options.shared ?? false);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/**
 * `pack` in small steps, so that whoever drives it can do other things in between. `shared` may be `auto`: in place where that is possible,
 * otherwise in shared memory where it is worth its while.
 */
export function* packing(
  items: readonly Item[],
  shared: boolean | "auto",
): Generator<undefined, PackedBatch> {
  if (!Array.isArray(items)) throw new ConfigError("a batch is a list of items or a packed batch");
  const count = items.length;
  const table = new Uint32Array(memory(count * TABLE_STRIDE * 4, shared === true));
  const extent = newExtent();
  for (let at = 0; at < count; at++) {
    measure(items[at], table, at * TABLE_STRIDE, extent);
    if (at % GO_ITEMS === GO_ITEMS - 1) yield;
  }
  if (shared !== true && isCompact(extent)) {
    const start = extent.start;
    yield* place(items, table, (part) => part.byteOffset - start);
    return { bytes: new Uint8Array(extent.buffer, start, extent.end - start), table, count };
  }
  if (extent.bytes > MOST_BYTES)
    throw new LimitError(`a batch has at most 4 GiB; this one has ${extent.bytes} bytes`);
  const isShared = shared === true || (shared === "auto" && extent.bytes >= SHARED_BYTES);
  const bytes = new Uint8Array(memory(extent.bytes, isShared));
  let next = 0;
  yield* place(items, table, (part) => {
    bytes.set(part, next);
    next += part.length;
    return next - part.length;
  });
  return { bytes, table, count };
}

/** Where the parts of a list lie, and how many bytes they have together. */
interface Extent {
  /** The one buffer that holds them all so far; null where there is none. */
  buffer: ArrayBufferLike | null;
  isOne: boolean;
  start: number;
  end: number;
  bytes: number;
}

function newExtent(): Extent {
  return { buffer: null, isOne: true, start: Number.MAX_SAFE_INTEGER, end: 0, bytes: 0 };
}

function isCompact(extent: Extent): extent is Extent & { buffer: ArrayBufferLike } {
  const span = extent.end - extent.start;
  return extent.isOne && extent.buffer !== null && span <= MOST_BYTES && span <= 2 * extent.bytes;
}

function memory(size: number, shared: boolean): ArrayBufferLike {
  return shared ? new SharedArrayBuffer(size) : new ArrayBuffer(size);
}

function partsOf(item: Item | undefined): readonly unknown[] {
  return [item?.publicKey, item?.message, item?.signature];
}

/** Writes the lengths of an item's parts into its row. */
function measure(item: Item | undefined, table: Uint32Array, row: number, extent: Extent): void {
  let at = row;
  for (const part of partsOf(item)) {
    const isBytes = isUint8Array(part) && part.length < NOWHERE;
    table[at] = NOWHERE;
    table[at + 1] = isBytes ? part.length : NOWHERE;
    at += 2;
    if (!isBytes || part.length === 0) continue;
    extent.bytes += part.length;
    extent.buffer ??= part.buffer;
    extent.isOne &&= part.buffer === extent.buffer;
    extent.start = Math.min(extent.start, part.byteOffset);
    extent.end = Math.max(extent.end, part.byteOffset + part.length);
  }
}

/** Writes the offsets. A part that is not what `measure` saw stays nowhere. */
function* place(
  items: readonly Item[],
  table: Uint32Array,
  offsetOf: (part: Uint8Array) => number,
): Generator<undefined, void> {
  let done = 0;
  for (let index = 0; index * TABLE_STRIDE < table.length; index++) {
    let at = index * TABLE_STRIDE;
    for (const part of partsOf(items[index])) {
      if (isUint8Array(part) && part.length === table[at + 1]) {
        table[at] = part.length === 0 ? 0 : offsetOf(part);
        done += part.length;
      }
      at += 2;
    }
    if (index % GO_ITEMS !== GO_ITEMS - 1 && done < GO_BYTES) continue;
    done = 0;
    yield;
  }
}

/** Throws `ConfigError` where `batch` is not a packed batch. What is wrong with single items is no business of this. */
export function checkPacked(batch: unknown): PackedBatch {
  if (typeof batch !== "object" || batch === null)
    throw new ConfigError("a batch is a list of items or a packed batch");
  const { bytes, table, count } = batch as Partial<PackedBatch>;
  if (!isUint8Array(bytes)) throw new ConfigError("a packed batch has its bytes in a Uint8Array");
  // Released memory would make every item of the batch malformed, which is no verdict on it.
  if (bytes.buffer instanceof ArrayBuffer && bytes.buffer.detached)
    throw new ConfigError("the bytes of this packed batch have been released");
  if (bytes.length > MOST_BYTES) throw new LimitError("a packed batch has at most 4 GiB");
  if (!isUint32Array(table)) throw new ConfigError("a packed batch has its table in a Uint32Array");
  if (typeof count !== "number" || !Number.isSafeInteger(count) || count < 0)
    throw new ConfigError("a packed batch has a count, 0 or more");
  if (table.length < count * TABLE_STRIDE)
    throw new ConfigError(
      `a packed batch of ${count} items has ${count * TABLE_STRIDE} entries in its table, this one ${table.length}`,
    );
  return { bytes, table, count };
}
