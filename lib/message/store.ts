/** Stores of single values, each with the check that the value is one of its type. */
import { MessageError } from "../errors/index.ts";
import { TEXT_BYTES_MAX } from "./format.ts";

const INT64_MIN = -(2n ** 63n);
const INT64_MAX = 2n ** 63n - 1n;
const UINT64_MAX = 2n ** 64n - 1n;

const encoder = new TextEncoder();

/** The error of everything in this part that cannot be built as asked. */
export function buildError(message: string): MessageError {
  return new MessageError("ERR_ZAP_MESSAGE_BUILD", message);
}

/** A value in a few characters, for an error message. Never throws. */
export function show(value: unknown): string {
  switch (typeof value) {
    case "number":
    case "boolean":
    case "undefined":
      return String(value);
    case "bigint":
      return `${value}n`;
    case "string":
      return `a string of ${value.length}`;
    default:
      return value === null
        ? "null"
        : value instanceof Uint8Array
          ? `${value.length} bytes`
          : `value of type ${typeof value}`;
  }
}

function integer(type: string, value: number, min: number, max: number): number {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw buildError(`${type}: an integer from ${min} to ${max} is needed, got ${show(value)}`);
}

/** The 64-bit two's complement of a bigint, or of a number that is a safe integer. */
function storeWide(
  type: string,
  view: DataView,
  at: number,
  value: bigint | number,
  min: bigint,
  max: bigint,
): void {
  // Numbers go in as two halves: making a bigint of each would cost ten times as much.
  if (Number.isSafeInteger(value) && (min < 0n || (value as number) >= 0)) {
    view.setUint32(at, (value as number) >>> 0, true);
    view.setInt32(at + 4, Math.floor((value as number) / 2 ** 32), true);
  } else if (typeof value === "bigint" && value >= min && value <= max) {
    view.setBigInt64(at, value, true);
  } else {
    throw buildError(
      `${type}: a bigint (or safe integer) from ${min} to ${max} is needed, got ${show(value)}`,
    );
  }
}

export function storeBool(view: DataView, at: number, value: boolean): void {
  if (typeof value !== "boolean") throw buildError(`bool: true or false is needed, got ${show(value)}`);
  view.setUint8(at, value ? 1 : 0);
}

export function storeUint8(view: DataView, at: number, value: number): void {
  view.setUint8(at, integer("uint8", value, 0, 0xff));
}

export function storeUint16(view: DataView, at: number, value: number): void {
  view.setUint16(at, integer("uint16", value, 0, 0xffff), true);
}

export function storeUint32(view: DataView, at: number, value: number): void {
  view.setUint32(at, integer("uint32", value, 0, 0xffff_ffff), true);
}

export function storeUint64(view: DataView, at: number, value: bigint | number): void {
  storeWide("uint64", view, at, value, 0n, UINT64_MAX);
}

export function storeInt8(view: DataView, at: number, value: number): void {
  view.setInt8(at, integer("int8", value, -0x80, 0x7f));
}

export function storeInt16(view: DataView, at: number, value: number): void {
  view.setInt16(at, integer("int16", value, -0x8000, 0x7fff), true);
}

export function storeInt32(view: DataView, at: number, value: number): void {
  view.setInt32(at, integer("int32", value, -0x8000_0000, 0x7fff_ffff), true);
}

export function storeInt64(view: DataView, at: number, value: bigint | number): void {
  storeWide("int64", view, at, value, INT64_MIN, INT64_MAX);
}

/** Rounds to the nearest float32; a finite number that would round to infinity is out of range. */
export function storeFloat32(view: DataView, at: number, value: number): void {
  if (typeof value !== "number" || (Number.isFinite(value) && !Number.isFinite(Math.fround(value)))) {
    throw buildError(`float32: a number within the range of a float32 is needed, got ${show(value)}`);
  }
  view.setFloat32(at, value, true);
}

export function storeFloat64(view: DataView, at: number, value: number): void {
  if (typeof value !== "number") throw buildError(`float64: a number is needed, got ${show(value)}`);
  view.setFloat64(at, value, true);
}

/**
 * A pointer that stands at `at` and leads to `target`. The two differ in any message but for a zero-sized object that shares
 * its place with what was reserved after it, which the format cannot tell from null.
 */
export function storePointer(view: DataView, at: number, target: number): void {
  const relative = target - at;
  if (relative === 0) {
    throw buildError(`a pointer at offset ${at} to offset ${at} would read as null: give the object a size`);
  }
  if (relative < -0x8000_0000 || relative > 0x7fff_ffff) {
    throw buildError(
      `a pointer at offset ${at} cannot reach offset ${target}: 32 signed bits are not enough`,
    );
  }
  view.setInt32(at, relative, true);
}

/** Throws where `value` is not a `Uint8Array`. */
export function checkBytes(value: Uint8Array): void {
  if (!(value instanceof Uint8Array)) throw buildError(`bytes: a Uint8Array is needed, got ${show(value)}`);
}

/** A copy of the bytes, which the caller may change before they are written. */
export function copyOf(value: Uint8Array): Uint8Array {
  checkBytes(value);
  return new Uint8Array(value);
}

/** The text's UTF-8. Half a surrogate pair has none, and is an error rather than a silent U+FFFD. */
export function utf8Of(value: string): Uint8Array {
  if (typeof value !== "string") throw buildError(`text: a string is needed, got ${show(value)}`);
  if (!value.isWellFormed()) throw buildError(`text: ${show(value)} holds half a surrogate pair`);
  const encoded = encoder.encode(value);
  if (encoded.length > TEXT_BYTES_MAX) {
    throw buildError(`text: at most ${TEXT_BYTES_MAX} bytes of UTF-8 are possible, got ${encoded.length}`);
  }
  return encoded;
}
