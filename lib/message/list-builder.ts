/** Lists under construction. Elements gather beside the message and are appended, aligned, when the list is finished. */
import { POINTER_BYTES, SLOT_BYTES } from "./format.ts";
import { Part, pointTo } from "./draft.ts";
import type { Draft, ObjectTarget } from "./draft.ts";
import type { Sink } from "./sink.ts";
import * as store from "./store.ts";

/** A list that lies in the message. Give it to `setList`. */
export interface PlacedList {
  /** Where its first element starts, absolute, bytes. */
  readonly offset: number;
  /** How many elements. */
  readonly length: number;
}

/** Writes the slot of a list; a list without elements is null. */
export function storeList(draft: Draft, at: number, list: PlacedList): void {
  const { view } = draft.sink;
  if (list.length === 0) {
    view.setBigUint64(at, 0n);
    return;
  }
  store.storePointer(view, at, list.offset);
  view.setUint32(at + 4, list.length, true);
}

/**
 * What all lists under construction share. Objects and other lists may be built while a list is open: its elements stay
 * together, because they enter the message only at `finish()`.
 */
export abstract class ListBuilder extends Part {
  #placed: PlacedList | null = null;
  /** Slots of finished objects that wait to learn where this list lies. */
  readonly #waiting: number[] = [];

  /** @internal */
  constructor(draft: Draft) {
    super(draft);
    // Even a list that stays empty takes the padding of its start, as with the Go builder.
    draft.align();
    draft.openLists++;
  }

  /** How many elements so far. */
  abstract get length(): number;

  /** Appends the elements to the message. Throws `MessageError` where that would make it too large, and on a second call. */
  finish(): PlacedList {
    this.live();
    const offset = this.draft.align();
    this.place(offset);
    this.close();
    this.draft.openLists--;
    this.#placed = { offset, length: this.length };
    for (const at of this.#waiting) storeList(this.draft, at, this.#placed);
    return this.#placed;
  }

  /** @internal Makes the slot at `at` point to this list: now, or when the list is finished. */
  pointFrom(at: number): void {
    if (this.#placed === null) this.#waiting.push(at);
    else storeList(this.draft, at, this.#placed);
  }

  /** Appends the elements at `offset`, the aligned end of the message. */
  protected abstract place(offset: number): void;
}

/** A list of numbers, of bytes, or of fixed-size byte strings such as addresses. What is added must fit the stride. */
export class ScalarListBuilder extends ListBuilder {
  /** Bytes of one element. */
  readonly stride: number;
  /** The draft's again once this list is finished. */
  readonly #elements: Sink;
  #length = 0;

  /** @internal */
  constructor(draft: Draft, stride: number) {
    super(draft);
    this.stride = stride;
    this.#elements = draft.takeSpare();
  }

  get length(): number {
    return this.#length;
  }

  addUint8(value: number): this {
    const elements = this.#room(1);
    store.storeUint8(elements.view, elements.length, value);
    return this.#added();
  }

  addUint16(value: number): this {
    const elements = this.#room(2);
    store.storeUint16(elements.view, elements.length, value);
    return this.#added();
  }

  addUint32(value: number): this {
    const elements = this.#room(4);
    store.storeUint32(elements.view, elements.length, value);
    return this.#added();
  }

  addUint64(value: bigint | number): this {
    const elements = this.#room(8);
    store.storeUint64(elements.view, elements.length, value);
    return this.#added();
  }

  addInt8(value: number): this {
    const elements = this.#room(1);
    store.storeInt8(elements.view, elements.length, value);
    return this.#added();
  }

  addInt16(value: number): this {
    const elements = this.#room(2);
    store.storeInt16(elements.view, elements.length, value);
    return this.#added();
  }

  addInt32(value: number): this {
    const elements = this.#room(4);
    store.storeInt32(elements.view, elements.length, value);
    return this.#added();
  }

  addInt64(value: bigint | number): this {
    const elements = this.#room(8);
    store.storeInt64(elements.view, elements.length, value);
    return this.#added();
  }

  addFloat32(value: number): this {
    const elements = this.#room(4);
    store.storeFloat32(elements.view, elements.length, value);
    return this.#added();
  }

  addFloat64(value: number): this {
    const elements = this.#room(8);
    store.storeFloat64(elements.view, elements.length, value);
    return this.#added();
  }

  /** One element of exactly `stride` bytes. */
  addFixedBytes(value: Uint8Array): this {
    store.checkBytes(value);
    this.#room(value.length).append(value);
    this.#length++;
    return this;
  }

  /** As many elements as there are bytes; only for a byte list (stride 1). */
  addBytes(value: Uint8Array): this {
    store.checkBytes(value);
    this.#room(1).append(value);
    this.#length += value.length;
    return this;
  }

  protected override place(): void {
    const { bytes, length } = this.#elements;
    this.draft.sink.append(bytes.subarray(0, length));
    this.draft.putBack(this.#elements);
  }

  #room(width: number): Sink {
    this.live();
    if (width !== this.stride) {
      throw store.buildError(
        `${width} bytes do not make an element of a list with a stride of ${this.stride}`,
      );
    }
    this.#elements.ensure(width);
    return this.#elements;
  }

  #added(): this {
    this.#elements.length += this.stride;
    this.#length++;
    return this;
  }
}

/** A list of objects by pointer: each object lies elsewhere in the message, or is null. */
export class PointerListBuilder extends ListBuilder {
  readonly #targets: number[] = [];

  get length(): number {
    return this.#targets.length;
  }

  /** An object of this builder, finished or not; or the offset that its `finish()` gave; 0 or null for null. */
  add(object: ObjectTarget): this {
    this.live();
    this.#targets.push(pointTo(this.draft, object));
    return this;
  }

  protected override place(offset: number): void {
    const { sink } = this.draft;
    sink.reserve(this.#targets.length * POINTER_BYTES);
    let at = offset;
    for (const target of this.#targets) {
      if (target !== 0) store.storePointer(sink.view, at, target);
      at += POINTER_BYTES;
    }
  }
}

/** A list of texts or byte strings of any length. Their slots come first, then what they point to, in order. */
export class TextListBuilder extends ListBuilder {
  readonly #values: Uint8Array[] = [];

  get length(): number {
    return this.#values.length;
  }

  addText(value: string): this {
    this.live();
    this.#values.push(store.utf8Of(value));
    return this;
  }

  /** Takes a copy. */
  addBytes(value: Uint8Array): this {
    this.live();
    this.#values.push(store.copyOf(value));
    return this;
  }

  protected override place(offset: number): void {
    this.draft.sink.reserve(this.#values.length * SLOT_BYTES);
    let at = offset;
    for (const value of this.#values) {
      this.draft.writeBytes(at, value);
      at += SLOT_BYTES;
    }
  }
}
