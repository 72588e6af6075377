/** Zero-copy readers for objects and lists. Every read is total: it never throws, loops or looks outside the message. */
import { ADDRESS_BYTES, HASH_BYTES, SIGNATURE_BYTES, SLOT_BYTES } from "./format.ts";
import {
  EMPTY_BYTES,
  OUTSIDE,
  bytesAt,
  fixedBytesAt,
  float32At,
  float64At,
  int32At,
  int64At,
  targetAt,
  textAt,
  uint16At,
  uint32In,
  uint64At,
  uint8At,
} from "./load.ts";

/**
 * One object of a message, read in place.
 *
 * Every method takes the field's offset in the object's fixed section, bytes. A read that falls outside the message, a pointer
 * that leads out of it, a null pointer and an offset that is not a non-negative integer all give the zero value: `0`, `0n`,
 * `false`, `""`, empty bytes, `null` for fixed-size bytes, `NULL_OBJECT`, `NULL_LIST`. The format does not record how long a
 * fixed section is, so a field beyond its end reads whatever bytes of the message lie there.
 *
 * Returned bytes are views of the message: they live as long as its memory does, and are not to be written to.
 */
export class ObjectReader {
  readonly #bytes: Uint8Array;
  /** Where the object starts in the message, bytes; 0 for the null object. Enough to notice a cycle. */
  readonly offset: number;

  /** @internal `offset` is 0 or at least 16. */
  constructor(bytes: Uint8Array, offset: number) {
    this.#bytes = bytes;
    this.offset = offset;
  }

  /** There is no such object: every read of it gives the zero value. */
  get isNull(): boolean {
    return this.offset === 0;
  }

  bool(field: number): boolean {
    return uint8At(this.#bytes, this.#at(field)) !== 0;
  }

  uint8(field: number): number {
    return uint8At(this.#bytes, this.#at(field));
  }

  uint16(field: number): number {
    return uint16At(this.#bytes, this.#at(field));
  }

  uint32(field: number): number {
    return int32At(this.#bytes, this.#at(field)) >>> 0;
  }

  uint64(field: number): bigint {
    return uint64At(this.#bytes, this.#at(field));
  }

  int8(field: number): number {
    return (uint8At(this.#bytes, this.#at(field)) << 24) >> 24;
  }

  int16(field: number): number {
    return (uint16At(this.#bytes, this.#at(field)) << 16) >> 16;
  }

  int32(field: number): number {
    return int32At(this.#bytes, this.#at(field));
  }

  int64(field: number): bigint {
    return int64At(this.#bytes, this.#at(field));
  }

  float32(field: number): number {
    return float32At(this.#bytes, this.#at(field));
  }

  float64(field: number): number {
    return float64At(this.#bytes, this.#at(field));
  }

  /** Bytes that are not UTF-8 read as U+FFFD. Empty where the text is longer than `TEXT_BYTES_MAX`. */
  text(field: number): string {
    return textAt(this.#bytes, this.#at(field));
  }

  /** A view. The format has one representation for empty and absent bytes, so both read as empty. */
  bytes(field: number): Uint8Array {
    return bytesAt(this.#bytes, this.#at(field));
  }

  /** A view of `width` bytes that lie in the fixed section itself, or null. */
  fixedBytes(field: number, width: number): Uint8Array | null {
    return fixedBytesAt(this.#bytes, this.#at(field), width);
  }

  /** A view of an EVM address, 20 bytes, or null. */
  address(field: number): Uint8Array | null {
    return fixedBytesAt(this.#bytes, this.#at(field), ADDRESS_BYTES);
  }

  /** A view of a hash, 32 bytes, or null. */
  hash(field: number): Uint8Array | null {
    return fixedBytesAt(this.#bytes, this.#at(field), HASH_BYTES);
  }

  /** A view of an ECDSA signature, 65 bytes (r, s, v), or null. */
  signature(field: number): Uint8Array | null {
    return fixedBytesAt(this.#bytes, this.#at(field), SIGNATURE_BYTES);
  }

  object(field: number): ObjectReader {
    return objectIn(this.#bytes, targetAt(this.#bytes, this.#at(field)));
  }

  /**
   * The list whose elements take `stride` bytes each: 1 for `uint8`, 8 for `uint64`, `POINTER_BYTES` for objects by pointer,
   * `SLOT_BYTES` for texts, the size of the fixed section for inline objects. `NULL_LIST` where the message has not room for as
   * many elements as the length says.
   */
  list(field: number, stride: number): ListReader {
    const bytes = this.#bytes;
    const at = this.#at(field);
    if (at + SLOT_BYTES > bytes.length || !(stride > 0 && Number.isInteger(stride))) return NULL_LIST;
    const target = targetAt(bytes, at);
    const length = uint32In(bytes, at + 4);
    if (target === 0 || length * stride > bytes.length - target) return NULL_LIST;
    return new ListReader(bytes, target, length, stride);
  }

  #at(field: number): number {
    return field >>> 0 === field && this.offset !== 0 ? this.offset + field : OUTSIDE;
  }
}

/**
 * One list of a message, read in place. Methods take the element's index; an index outside 0 to `length - 1`, and an element
 * type wider than the stride, give the zero value, as in `ObjectReader`.
 */
export class ListReader {
  readonly #bytes: Uint8Array;
  /** Where the first element starts in the message, bytes; 0 for the null list. */
  readonly offset: number;
  /** How many elements; all of them lie inside the message. */
  readonly length: number;
  /** Bytes from one element to the next. */
  readonly stride: number;

  /** @internal The caller has checked that `length` elements lie inside. */
  constructor(bytes: Uint8Array, offset: number, length: number, stride: number) {
    this.#bytes = bytes;
    this.offset = offset;
    this.length = length;
    this.stride = stride;
  }

  /** There is no such list, or it was not readable as asked. Its length is 0. */
  get isNull(): boolean {
    return this.offset === 0;
  }

  uint8(index: number): number {
    return uint8At(this.#bytes, this.#at(index, 1));
  }

  uint16(index: number): number {
    return uint16At(this.#bytes, this.#at(index, 2));
  }

  uint32(index: number): number {
    return int32At(this.#bytes, this.#at(index, 4)) >>> 0;
  }

  uint64(index: number): bigint {
    return uint64At(this.#bytes, this.#at(index, 8));
  }

  int8(index: number): number {
    return (uint8At(this.#bytes, this.#at(index, 1)) << 24) >> 24;
  }

  int16(index: number): number {
    return (uint16At(this.#bytes, this.#at(index, 2)) << 16) >> 16;
  }

  int32(index: number): number {
    return int32At(this.#bytes, this.#at(index, 4));
  }

  int64(index: number): bigint {
    return int64At(this.#bytes, this.#at(index, 8));
  }

  float32(index: number): number {
    return float32At(this.#bytes, this.#at(index, 4));
  }

  float64(index: number): number {
    return float64At(this.#bytes, this.#at(index, 8));
  }

  /** A view of a whole element, `stride` bytes, or null: for lists of addresses, hashes and the like. */
  fixedBytes(index: number): Uint8Array | null {
    return fixedBytesAt(this.#bytes, this.#at(index, 1), this.stride);
  }

  /** An element of a list of texts (stride `SLOT_BYTES`). */
  text(index: number): string {
    return textAt(this.#bytes, this.#at(index, SLOT_BYTES));
  }

  /** An element of a list of byte strings (stride `SLOT_BYTES`): a view. */
  bytes(index: number): Uint8Array {
    return bytesAt(this.#bytes, this.#at(index, SLOT_BYTES));
  }

  /** An inline object: the element itself is its fixed section. */
  object(index: number): ObjectReader {
    const at = this.#at(index, 1);
    return objectIn(this.#bytes, at < this.#bytes.length ? at : 0);
  }

  /** An object by pointer (stride `POINTER_BYTES`). */
  pointer(index: number): ObjectReader {
    return objectIn(this.#bytes, targetAt(this.#bytes, this.#at(index, 4)));
  }

  /** A view of all elements, `length * stride` bytes. With stride 1 these are the bytes of a byte list. */
  contents(): Uint8Array {
    const end = this.offset + this.length * this.stride;
    if (this.length === 0 || end > this.#bytes.length) return EMPTY_BYTES;
    return this.#bytes.subarray(this.offset, end);
  }

  #at(index: number, width: number): number {
    const inside = index >>> 0 === index && index < this.length && width <= this.stride;
    return inside ? this.offset + index * this.stride : OUTSIDE;
  }
}

/** The object that a null pointer stands for. Reads like any other; everything in it is zero. */
export const NULL_OBJECT = new ObjectReader(EMPTY_BYTES, 0);

/** The list that a null pointer stands for: no elements. */
export const NULL_LIST = new ListReader(EMPTY_BYTES, 0, 0, 1);

/** The object at `offset`, or the null object where that is 0. */
export function objectIn(bytes: Uint8Array, offset: number): ObjectReader {
  return offset === 0 ? NULL_OBJECT : new ObjectReader(bytes, offset);
}
