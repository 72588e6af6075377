/** The way into building a message. */
import { HEADER_BYTES, MAGIC, MESSAGE_BYTES_MAX, TYPE_SHIFT, VERSION } from "./format.ts";
import { Draft } from "./draft.ts";
import { PointerListBuilder, ScalarListBuilder, TextListBuilder } from "./list-builder.ts";
import { ObjectBuilder } from "./object-builder.ts";
import { ObjectList } from "./object-list.ts";
import { buildError, show } from "./store.ts";

export interface BuilderOptions {
  /** Bytes to start with; the memory doubles when it is full. Default 256. */
  readonly capacity?: number;
  /** The largest message to build, bytes, header included. Default and at most 2^32 - 1. */
  readonly bytesMax?: number;
}

export interface FinishOptions {
  /** `FLAG_...` values, or all 16 bits where `type` is not given. Default 0. */
  readonly flags?: number;
  /** Message type, 0 to 255: the upper 8 bits of the flags. Go nodes silently drop plain messages whose flags are all 0. */
  readonly type?: number;
}

/**
 * Builds one message at a time.
 *
 * Any number of objects and lists may be open at once, and finished in any order: each has its place, so parents and children
 * cannot overlap. The bytes are those of the Go builder wherever that one gives a sound message. Everything that cannot be
 * built as asked throws `MessageError` with `ERR_ZAP_MESSAGE_BUILD`.
 */
export class MessageBuilder {
  readonly #draft: Draft;

  constructor(options: BuilderOptions = {}) {
    const bytesMax = count(
      "bytesMax",
      options.bytesMax ?? MESSAGE_BYTES_MAX,
      HEADER_BYTES,
      MESSAGE_BYTES_MAX,
    );
    const capacity = count("capacity", options.capacity ?? 256, 0, MESSAGE_BYTES_MAX);
    this.#draft = new Draft(Math.min(Math.max(capacity, HEADER_BYTES), bytesMax), bytesMax);
  }

  /** Starts an object with a fixed section of `dataBytes` zeros, at the next 8-byte boundary. */
  startObject(dataBytes: number): ObjectBuilder {
    count("dataBytes", dataBytes, 0, MESSAGE_BYTES_MAX);
    this.#draft.align();
    return new ObjectBuilder(this.#draft, this.#draft.sink.reserve(dataBytes), dataBytes);
  }

  /** Starts a list whose elements take `stride` bytes each: 1 for `uint8` and bytes, 8 for `float64`, 20 for addresses. */
  startList(stride: number): ScalarListBuilder {
    return new ScalarListBuilder(this.#draft, count("stride", stride, 1, MESSAGE_BYTES_MAX));
  }

  /** Starts a list of objects by pointer (stride `POINTER_BYTES` when read). */
  startPointerList(): PointerListBuilder {
    return new PointerListBuilder(this.#draft);
  }

  /** Starts a list of texts or byte strings (stride `SLOT_BYTES` when read). */
  startTextList(): TextListBuilder {
    return new TextListBuilder(this.#draft);
  }

  /**
   * Places a list of `length` inline objects with fixed sections of `stride` zeros each, one after another. Take a stride that
   * is a multiple of 8 to have each aligned.
   */
  placeObjects(length: number, stride: number): ObjectList {
    count("length", length, 0, MESSAGE_BYTES_MAX);
    count("stride", stride, 1, MESSAGE_BYTES_MAX);
    this.#draft.align();
    return new ObjectList(this.#draft, this.#draft.sink.reserve(length * stride), length, stride);
  }

  /**
   * The message, as a copy that is the caller's own. Throws where an object or list is still open, or where there are objects
   * and none is the root. A builder that has built nothing gives a bare header with a null root.
   *
   * After this, only `reset()` and another `finish()` of the same message are possible.
   */
  finish(options: FinishOptions = {}): Uint8Array {
    const draft = this.#draft;
    const { sink } = draft;
    const flags = flagsOf(options);
    if (draft.openObjects + draft.openLists > 0) {
      throw buildError(
        `still open: ${draft.openObjects} objects, ${draft.openLists} lists; finish them first`,
      );
    }
    if (draft.rootOffset === 0 && sink.length > HEADER_BYTES) {
      throw buildError("no object was finished as the root: end one of them with finishAsRoot()");
    }
    draft.finished = true;
    sink.view.setUint32(0, MAGIC, true);
    sink.view.setUint16(4, VERSION, true);
    sink.view.setUint16(6, flags, true);
    sink.view.setUint32(8, draft.rootOffset, true);
    sink.view.setUint32(12, sink.length, true);
    return sink.bytes.slice(0, sink.length);
  }

  /** Forgets the message, and every object and list of it, and keeps the memory for the next one. */
  reset(): this {
    this.#draft.reset();
    return this;
  }
}

function count(name: string, value: number, min: number, max: number): number {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw buildError(`${name}: an integer from ${min} to ${max} is needed, got ${show(value)}`);
}

function flagsOf(options: FinishOptions): number {
  if (options.type === undefined) return count("flags", options.flags ?? 0, 0, 0xffff);
  const type = count("type", options.type, 0, 0xff);
  return count("flags (beside a type)", options.flags ?? 0, 0, 0xff) | (type << TYPE_SHIFT);
}
