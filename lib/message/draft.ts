/** The message under construction, shared by a builder and the objects and lists that it has started. */
import { ALIGNMENT_BYTES, HEADER_BYTES } from "./format.ts";
import { Sink } from "./sink.ts";
import { buildError, show, storePointer } from "./store.ts";

/** Memory for the elements of a list: to start with, and how many pieces are kept for lists to come. */
const SPARE_BYTES = 256;
const SPARES_MAX = 8;

export class Draft {
  readonly sink: Sink;
  readonly bytesMax: number;
  /** Counts resets, so that parts of an earlier message are told from those of this one. */
  generation = 0;
  openObjects = 0;
  openLists = 0;
  /** 0 until an object is finished as the root. */
  rootOffset = 0;
  finished = false;
  readonly #spares: Sink[] = [];

  constructor(capacity: number, bytesMax: number) {
    this.bytesMax = bytesMax;
    this.sink = new Sink(capacity, bytesMax);
    this.sink.reserve(HEADER_BYTES);
  }

  reset(): void {
    this.generation++;
    this.openObjects = 0;
    this.openLists = 0;
    this.rootOffset = 0;
    this.finished = false;
    this.sink.length = 0;
    this.sink.reserve(HEADER_BYTES);
  }

  /** Pads the message with zeros to where the next object or list starts, and returns that. */
  align(): number {
    this.checkUnfinished();
    return this.sink.align(ALIGNMENT_BYTES);
  }

  /** Throws between `finish()` and `reset()`. */
  checkUnfinished(): void {
    if (this.finished) throw buildError("the message is finished: call reset() before the next one");
  }

  /** An empty sink for the elements of one list; `putBack` when they are in the message. */
  takeSpare(): Sink {
    return this.#spares.pop() ?? new Sink(SPARE_BYTES, this.bytesMax);
  }

  putBack(spare: Sink): void {
    spare.length = 0;
    if (this.#spares.length < SPARES_MAX) this.#spares.push(spare);
  }

  /** Appends the bytes and makes the slot at `at` point to them. The slot is zero before; empty bytes leave it null. */
  writeBytes(at: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const target = this.sink.append(bytes);
    storePointer(this.sink.view, at, target);
    this.sink.view.setUint32(at + 4, bytes.length, true);
  }
}

/** An object or a list that has been started: open until it is finished, dead after `reset()`. */
export abstract class Part {
  protected readonly draft: Draft;
  readonly #generation: number;
  #open = true;

  protected constructor(draft: Draft) {
    this.draft = draft;
    this.#generation = draft.generation;
  }

  protected close(): void {
    this.#open = false;
  }

  /** Throws where this part can no longer be written to. */
  protected live(): void {
    this.checkWithin(this.draft);
    if (!this.#open) throw buildError("this object or list is finished: nothing can be added to it");
  }

  /** @internal Throws where this part does not belong to what `draft` is at now. */
  checkWithin(draft: Draft): void {
    if (this.draft !== draft) throw buildError("an object or list of another builder cannot be used here");
    if (this.#generation !== draft.generation)
      throw buildError("the builder was reset: this object or list is gone");
  }
}

/** Something that knows where it lies: an object under construction. */
export abstract class PlacedPart extends Part {
  /** Where it starts in the message, absolute, bytes. */
  abstract readonly offset: number;
}

/** What a pointer can be made to lead to: an object, the offset that its `finish()` gave, or (0, null) nothing. */
export type ObjectTarget = PlacedPart | number | null;

/** The absolute offset of an object of `draft`, or 0 for null. Throws for what is neither. */
export function pointTo(draft: Draft, target: ObjectTarget): number {
  if (target === null || target === 0) return 0;
  if (target instanceof PlacedPart) {
    target.checkWithin(draft);
    return target.offset;
  }
  if (Number.isInteger(target) && target >= HEADER_BYTES && target <= draft.sink.length) return target;
  throw buildError(
    `an object, or an offset from ${HEADER_BYTES} to ${draft.sink.length}, is needed; got ${show(target)}`,
  );
}
