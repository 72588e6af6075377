/**
 * Loads of single values. Plain byte arithmetic rather than a `DataView`: a view costs 40 ns or more per message (250 ns on a
 * fresh small array, whose `ArrayBuffer` it would have to make), and typed arrays over released memory read as empty where a
 * `DataView` throws.
 *
 * `...In` loads trust their position. `...At` loads are total: a position whose bytes are not all inside gives zero. Positions
 * are never negative: callers pass `OUTSIDE` for a place that does not exist.
 */
import { HEADER_BYTES, SLOT_BYTES, TEXT_BYTES_MAX } from "./format.ts";

/** A position beyond any message; adding a width to it is still exact. */
export const OUTSIDE = 2 ** 48;

/** The zero value of bytes. Empty, so nothing can be written into it. */
export const EMPTY_BYTES = new Uint8Array(0);

// One place to turn eight bytes into a float or a bigint. Filled and read within one call, so sharing it is safe.
const scratch = new DataView(new ArrayBuffer(8));

// ignoreBOM keeps a leading U+FEFF, which is part of the text; without `fatal`, bad UTF-8 becomes U+FFFD.
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

export function uint16In(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8);
}

export function int32In(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
}

export function uint32In(bytes: Uint8Array, at: number): number {
  return int32In(bytes, at) >>> 0;
}

export function uint8At(bytes: Uint8Array, at: number): number {
  return at < bytes.length ? bytes[at]! : 0;
}

export function uint16At(bytes: Uint8Array, at: number): number {
  return at + 2 <= bytes.length ? uint16In(bytes, at) : 0;
}

export function int32At(bytes: Uint8Array, at: number): number {
  return at + 4 <= bytes.length ? int32In(bytes, at) : 0;
}

export function float32At(bytes: Uint8Array, at: number): number {
  if (at + 4 > bytes.length) return 0;
  scratch.setInt32(0, int32In(bytes, at));
  return scratch.getFloat32(0);
}

export function float64At(bytes: Uint8Array, at: number): number {
  if (at + 8 > bytes.length) return 0;
  scratch.setInt32(0, int32In(bytes, at + 4));
  scratch.setInt32(4, int32In(bytes, at));
  return scratch.getFloat64(0);
}

export function uint64At(bytes: Uint8Array, at: number): bigint {
  if (at + 8 > bytes.length) return 0n;
  scratch.setInt32(0, int32In(bytes, at + 4));
  scratch.setInt32(4, int32In(bytes, at));
  return scratch.getBigUint64(0);
}

export function int64At(bytes: Uint8Array, at: number): bigint {
  if (at + 8 > bytes.length) return 0n;
  scratch.setInt32(0, int32In(bytes, at + 4));
  scratch.setInt32(4, int32In(bytes, at));
  return scratch.getBigInt64(0);
}

/** `width` bytes in place, or null where they are not all inside or `width` is not a positive integer. */
export function fixedBytesAt(bytes: Uint8Array, at: number, width: number): Uint8Array | null {
  if (!(width > 0 && Number.isInteger(width) && at + width <= bytes.length)) return null;
  return bytes.subarray(at, at + width);
}

/**
 * What the text or bytes slot at `at` points to; empty where it is null or bad. The offset is read as unsigned: such data lies
 * behind the slot's first byte, so that nobody can alias bytes backwards into a fixed section.
 */
export function bytesAt(bytes: Uint8Array, at: number): Uint8Array {
  if (at + SLOT_BYTES > bytes.length) return EMPTY_BYTES;
  const relative = uint32In(bytes, at);
  const length = uint32In(bytes, at + 4);
  const target = at + relative;
  if (relative === 0 || length === 0 || target + length > bytes.length) return EMPTY_BYTES;
  return bytes.subarray(target, target + length);
}

export function textAt(bytes: Uint8Array, at: number): string {
  const encoded = bytesAt(bytes, at);
  if (encoded.length === 0 || encoded.length > TEXT_BYTES_MAX) return "";
  return decoder.decode(encoded);
}

/**
 * Where the object or list pointer at `at` points to, or 0 where it is null, or leads into the header or out of the message.
 * The offset is signed: a nested object may have been written before its parent.
 */
export function targetAt(bytes: Uint8Array, at: number): number {
  const relative = int32At(bytes, at);
  if (relative === 0) return 0;
  const target = at + relative;
  return target >= HEADER_BYTES && target < bytes.length ? target : 0;
}
