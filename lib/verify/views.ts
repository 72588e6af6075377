/**
 * Bytes and tables as callers give them, seen for what they are: a property of the same name, a subclass or a prototype that says otherwise does
 * not count. What was released, or lies outside of a buffer that has shrunk, has no bytes and says so.
 */
const TYPED_ARRAY = Object.getPrototypeOf(Uint8Array.prototype) as Uint8Array;

type View = Uint8Array | Uint32Array;

function getter<Value>(name: "length" | "byteOffset" | "buffer"): (this: View) => Value {
  return Object.getOwnPropertyDescriptor(TYPED_ARRAY, name)!.get as (this: View) => Value;
}

const length = getter<number>("length");
const byteOffset = getter<number>("byteOffset");
const buffer = getter<ArrayBufferLike>("buffer");
const { keys } = TYPED_ARRAY;

/** How many elements there are; 0 for a view that was released. */
export function lengthOf(view: View): number {
  return length.call(view);
}

/** Where they begin in their buffer, bytes; 0 for a view that was released. */
export function offsetOf(view: View): number {
  return byteOffset.call(view);
}

export function bufferOf(view: View): ArrayBufferLike {
  return buffer.call(view);
}

/** Whether the memory was transferred away, or has shrunk so that the view lies outside of it. Nothing else tells that from an empty view. */
export function isReleased(view: View): boolean {
  try {
    keys.call(view);
    return false;
  } catch {
    return true;
  }
}

/** The same bytes without anything that the caller has hung on to them; of a fixed length, so that a buffer that shrinks is noticed. */
export function plainBytes(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bufferOf(bytes), offsetOf(bytes), lengthOf(bytes));
}

/** The first `entries` of a table, likewise. */
export function plainTable(table: Uint32Array, entries: number): Uint32Array {
  return new Uint32Array(bufferOf(table), offsetOf(table), entries);
}
