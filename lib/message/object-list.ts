/** A list of inline objects: reserved whole, so that its elements can be set in any order and at any time. */
import { Part } from "./draft.ts";
import type { Draft } from "./draft.ts";
import type { PlacedList } from "./list-builder.ts";
import { ObjectBuilder } from "./object-builder.ts";
import { buildError, show } from "./store.ts";

/** It lies in the message from the start: give it to `setList` whenever you like. Elements not set are zero. */
export class ObjectList extends Part implements PlacedList {
  readonly offset: number;
  readonly length: number;
  /** Bytes of one element's fixed section. */
  readonly stride: number;

  /** @internal The caller has reserved `length * stride` zeros at `offset`. */
  constructor(draft: Draft, offset: number, length: number, stride: number) {
    super(draft);
    this.offset = offset;
    this.length = length;
    this.stride = stride;
  }

  /** Opens an element, to be set and finished like any object. Its texts and bytes go behind all that is there by then. */
  at(index: number): ObjectBuilder {
    this.live();
    this.draft.checkUnfinished();
    if (!(Number.isInteger(index) && index >= 0 && index < this.length)) {
      throw buildError(`there is no element ${show(index)} in a list of ${this.length}`);
    }
    return new ObjectBuilder(this.draft, this.offset + index * this.stride, this.stride);
  }
}
