/** Lists made into packed batches: in place where their parts lie close together, otherwise by one copy of each part. */
import { ConfigError, LimitError } from "../errors/index.ts";
import { checkBytes, checkCount, isList } from "./batch.ts";
import { TABLE_STRIDE, type Item, type PackedBatch } from "./contract.ts";
import { ReleasedError } from "./held.ts";
import { Survey } from "./survey.ts";

/** Items that are looked at in one go. */
const GO_ITEMS = 2_048;
/** Below this a batch is not worth a `SharedArrayBuffer`. */
const SHARED_BYTES = 64 * 1024;

export interface PackOptions {
  /** True: the bytes and the table lie in shared memory, where other threads read them without a copy. Default: false. */
  readonly shared?: boolean | undefined;
}

/**
 * `items` as a packed batch. Their parts are copied, unless they lie close together in one buffer already and `shared` is not asked for: then
 * the batch is a view of that, and the bytes must stay as they are until it has been verified. A `Uint8Array` that stands in consecutive items, or,
 * from 512 bytes on, in any of them, is copied once, and so are 512 bytes or more that consecutive items have as views of the same part of a buffer.
 * An item with a part that is no `Uint8Array`, that was released or that cannot be read becomes an item that is malformed.
 *
 * Throws `ConfigError` where `items` is no array or an option is bad, `LimitError` above 1,048,576 items, for 4 GiB or more, and where there is
 * not so much memory.
 */
export function pack(items: readonly Item[], options: PackOptions = {}): PackedBatch {
  const steps = packing(items, sharedOf(options));
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

function sharedOf(options: unknown): boolean {
  let shared: unknown;
  try {
    ({ shared } = options as PackOptions);
  } catch (cause) {
    throw new ConfigError("the options of pack cannot be read", { cause });
  }
  if (shared === undefined || typeof shared === "boolean") return shared ?? false;
  throw new ConfigError("the option shared of pack takes true or false");
}

/**
 * `pack` in small steps, so that whoever drives it can do other things in between. `shared` may be `auto`: in place where that is possible,
 * otherwise in shared memory where it is worth its while. Lists of up to 2,048 items and 1 MiB take one step. Throws `ERR_ZAP_VERIFY` where parts are
 * released between two steps; `inTurns`: for parts that were released before, too, unless that is seen in the first step, since afterwards nobody
 * can tell when it was.
 */
export function* packing(
  items: readonly Item[],
  shared: boolean | "auto",
  inTurns = false,
): Generator<undefined, PackedBatch> {
  const count = countOf(items);
  const tableBytes = count * TABLE_STRIDE * 4;
  const survey = new Survey(new Uint32Array(memory(tableBytes, isWorthSharing(tableBytes, shared))));
  const { table } = survey;
  for (let from = 0; from < count; from += GO_ITEMS) {
    if (from > 0) yield;
    survey.add(items, from, Math.min(count, from + GO_ITEMS), inTurns && from > 0);
  }
  const place = shared === true ? null : survey.place();
  if (place !== null) {
    const { length } = place;
    yield* survey.point();
    // Its parts are what they were while it is.
    if (place.length !== length) throw new ReleasedError();
    return { bytes: place, table, count };
  }
  checkBytes(survey.bytes);
  const bytes = new Uint8Array(memory(survey.bytes, isWorthSharing(survey.bytes, shared)));
  yield* survey.copy(bytes);
  return { bytes, table, count };
}

function countOf(items: unknown): number {
  if (!isList(items)) throw new ConfigError("a batch is a list of items or a packed batch");
  let length: unknown;
  try {
    ({ length } = items);
  } catch (cause) {
    throw new ConfigError("the list of items has a length that cannot be read", { cause });
  }
  return checkCount("the length of a list of items", length);
}

/** Shared memory is there at once; a large `ArrayBuffer` is filled with zeros in one go, which takes milliseconds. */
function isWorthSharing(size: number, shared: boolean | "auto"): boolean {
  return shared === true || (shared === "auto" && size >= SHARED_BYTES);
}

function memory(size: number, shared: boolean): ArrayBufferLike {
  try {
    return shared ? new SharedArrayBuffer(size) : new ArrayBuffer(size);
  } catch {
    throw new LimitError(`there is no memory for a batch of ${size} bytes`);
  }
}
