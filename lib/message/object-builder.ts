/** One object under construction: its whole fixed section is reserved from the start. */
import {
  ADDRESS_BYTES,
  HASH_BYTES,
  HEADER_BYTES,
  POINTER_BYTES,
  SIGNATURE_BYTES,
  SLOT_BYTES,
} from "./format.ts";
import { Part, PlacedPart, pointTo } from "./draft.ts";
import type { Draft, ObjectTarget } from "./draft.ts";
import { ListBuilder, storeList } from "./list-builder.ts";
import type { PlacedList } from "./list-builder.ts";
import * as store from "./store.ts";

const NO_LIST: PlacedList = { offset: 0, length: 0 };

/**
 * Sets the fields of one object. Every setter takes the field's offset in the fixed section, bytes, and returns the object.
 *
 * Throws `MessageError` with `ERR_ZAP_MESSAGE_BUILD` for a field that is not wholly inside the fixed section, a value that its
 * type cannot hold, and any use after `finish()` or after the builder's `reset()`. Fields not set are zero. Whether two fields
 * overlap is not checked; of two settings of one field the last wins.
 */
export class ObjectBuilder extends PlacedPart {
  readonly offset: number;
  /** Length of the fixed section, bytes. */
  readonly dataBytes: number;
  /** What is written when this object is finished, in the order of setting, and the slots that point to it. */
  #deferred: { readonly at: number; readonly value: Uint8Array | ListBuilder }[] | null = null;

  /** @internal The caller has reserved `dataBytes` zeros at `offset`. */
  constructor(draft: Draft, offset: number, dataBytes: number) {
    super(draft);
    this.offset = offset;
    this.dataBytes = dataBytes;
    draft.openObjects++;
  }

  setBool(field: number, value: boolean): this {
    store.storeBool(this.#view(), this.#at(field, 1), value);
    return this;
  }

  setUint8(field: number, value: number): this {
    store.storeUint8(this.#view(), this.#at(field, 1), value);
    return this;
  }

  setUint16(field: number, value: number): this {
    store.storeUint16(this.#view(), this.#at(field, 2), value);
    return this;
  }

  setUint32(field: number, value: number): this {
    store.storeUint32(this.#view(), this.#at(field, 4), value);
    return this;
  }

  setUint64(field: number, value: bigint | number): this {
    store.storeUint64(this.#view(), this.#at(field, 8), value);
    return this;
  }

  setInt8(field: number, value: number): this {
    store.storeInt8(this.#view(), this.#at(field, 1), value);
    return this;
  }

  setInt16(field: number, value: number): this {
    store.storeInt16(this.#view(), this.#at(field, 2), value);
    return this;
  }

  setInt32(field: number, value: number): this {
    store.storeInt32(this.#view(), this.#at(field, 4), value);
    return this;
  }

  setInt64(field: number, value: bigint | number): this {
    store.storeInt64(this.#view(), this.#at(field, 8), value);
    return this;
  }

  setFloat32(field: number, value: number): this {
    store.storeFloat32(this.#view(), this.#at(field, 4), value);
    return this;
  }

  setFloat64(field: number, value: number): this {
    store.storeFloat64(this.#view(), this.#at(field, 8), value);
    return this;
  }

  /** The text is written behind the fixed section when this object is finished. */
  setText(field: number, value: string): this {
    return this.#defer(field, store.utf8Of(value));
  }

  /** Takes a copy, which is written behind the fixed section when this object is finished. */
  setBytes(field: number, value: Uint8Array): this {
    return this.#defer(field, store.copyOf(value));
  }

  /** Puts the bytes into the fixed section itself, from `field` on. */
  setFixedBytes(field: number, value: Uint8Array): this {
    store.checkBytes(value);
    const at = this.#at(field, value.length);
    this.draft.sink.bytes.set(value, at);
    return this;
  }

  /** An EVM address: exactly 20 bytes. */
  setAddress(field: number, value: Uint8Array): this {
    return this.#setExactly("address", ADDRESS_BYTES, field, value);
  }

  /** A hash: exactly 32 bytes. */
  setHash(field: number, value: Uint8Array): this {
    return this.#setExactly("hash", HASH_BYTES, field, value);
  }

  /** An ECDSA signature: exactly 65 bytes (r, s, v). */
  setSignature(field: number, value: Uint8Array): this {
    return this.#setExactly("signature", SIGNATURE_BYTES, field, value);
  }

  /** Points to an object of the same builder, finished or not; or to the offset that its `finish()` gave; 0 or null for null. */
  setObject(field: number, target: ObjectTarget): this {
    const at = this.#at(field, POINTER_BYTES);
    const offset = pointTo(this.draft, target);
    this.#drop(at);
    if (offset === 0) this.#view().setUint32(at, 0);
    else store.storePointer(this.#view(), at, offset);
    return this;
  }

  /** Points to a list of the same builder, finished or not; or to what its `finish()` gave. Empty lists and null are null. */
  setList(field: number, list: ListBuilder | PlacedList | null): this {
    if (list instanceof ListBuilder) {
      list.checkWithin(this.draft);
      return this.#defer(field, list);
    }
    if (list instanceof Part) list.checkWithin(this.draft);
    const at = this.#at(field, SLOT_BYTES);
    const placed = list === null || list.offset === 0 || list.length === 0 ? NO_LIST : list;
    if (placed !== NO_LIST) this.#checkPlaced(placed);
    this.#drop(at);
    storeList(this.draft, at, placed);
    return this;
  }

  /** Writes what was deferred and returns the object's offset, for `setObject`. Throws on a second call. */
  finish(): number {
    this.live();
    if (this.#deferred !== null) {
      for (const { at, value } of this.#deferred) {
        this.#view().setBigUint64(at, 0n);
        if (value instanceof ListBuilder) value.pointFrom(at);
        else this.draft.writeBytes(at, value);
      }
      this.#deferred = null;
    }
    this.close();
    this.draft.openObjects--;
    return this.offset;
  }

  /** `finish()`, and makes this object the message's root. Throws where there is a root already. */
  finishAsRoot(): number {
    const { rootOffset } = this.draft;
    this.live();
    if (rootOffset !== 0) throw store.buildError(`the message has a root already, at offset ${rootOffset}`);
    this.draft.rootOffset = this.finish();
    return this.offset;
  }

  #view(): DataView {
    return this.draft.sink.view;
  }

  /** The absolute offset of a field of `width` bytes. */
  #at(field: number, width: number): number {
    this.live();
    if (Number.isInteger(field) && field >= 0 && field + width <= this.dataBytes) return this.offset + field;
    throw store.buildError(
      `a field of ${width} bytes at ${store.show(field)} is not inside the fixed section of ${this.dataBytes} bytes`,
    );
  }

  // The stride is not known here; what is sure is that an element has at least one byte.
  #checkPlaced({ offset, length }: PlacedList): void {
    const room = this.draft.sink.length - offset;
    if (Number.isInteger(offset) && offset >= HEADER_BYTES && Number.isInteger(length) && length <= room)
      return;
    throw store.buildError(`no list of ${store.show(length)} elements lies at offset ${store.show(offset)}`);
  }

  #defer(field: number, value: Uint8Array | ListBuilder): this {
    const at = this.#at(field, SLOT_BYTES);
    this.#drop(at);
    this.#deferred ??= [];
    this.#deferred.push({ at, value });
    return this;
  }

  /** Forgets what an earlier setting of the same field has deferred. */
  #drop(at: number): void {
    if (this.#deferred === null) return;
    const index = this.#deferred.findIndex((entry) => entry.at === at);
    if (index >= 0) this.#deferred.splice(index, 1);
  }

  #setExactly(type: string, width: number, field: number, value: Uint8Array): this {
    store.checkBytes(value);
    if (value.length !== width) {
      throw store.buildError(`${type}: exactly ${width} bytes are needed, got ${value.length}`);
    }
    return this.setFixedBytes(field, value);
  }
}
