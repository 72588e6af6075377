/** A received message: the header's fields and the way to its root object. */
import { MessageError } from "../errors/index.ts";
import { FLAG_COMPRESSED, FLAG_ENCRYPTED, FLAG_SIGNED, HEADER_BYTES, TYPE_SHIFT } from "./format.ts";
import { headerError, headerFault } from "./header.ts";
import { uint16At, uint32In, int32At } from "./load.ts";
import { objectIn } from "./reader.ts";
import type { ObjectReader } from "./reader.ts";

export interface ParseOptions {
  /** Versions to take; default `[1]`. Newer Go nodes write version 2, which has the same layout. */
  readonly versions?: readonly number[];
}

/**
 * Checks the header and returns a view; nothing is copied. Bytes beyond the size field are permitted and are not part of the
 * message.
 *
 * Throws `MessageError`, checked in this order: `ERR_ZAP_MESSAGE_SHORT` (fewer than 16 bytes, or not a `Uint8Array`),
 * `ERR_ZAP_MESSAGE_MAGIC`, `ERR_ZAP_MESSAGE_VERSION`, `ERR_ZAP_MESSAGE_SIZE` (a size field below 16 or beyond the bytes).
 *
 * The message stays the caller's memory: reads see later changes of it, and read as zero once it is detached.
 */
export function parse(bytes: Uint8Array, options?: ParseOptions): Message {
  if (!(bytes instanceof Uint8Array)) {
    throw new MessageError(
      "ERR_ZAP_MESSAGE_SHORT",
      `a ZAP message is a Uint8Array of at least ${HEADER_BYTES} bytes, got ${typeof bytes}`,
    );
  }
  const versions = options?.versions;
  const fault = headerFault(bytes, 0, bytes.length, versions);
  if (fault !== 0) throw headerError(fault, bytes, 0, bytes.length, versions);
  return new Message(exactly(bytes, uint32In(bytes, 12)));
}

// Callers may hand in a Buffer or another subclass; what comes out of the readers is always a plain Uint8Array.
function exactly(bytes: Uint8Array, size: number): Uint8Array {
  if (bytes.length === size && Object.getPrototypeOf(bytes) === Uint8Array.prototype) return bytes;
  return new Uint8Array(bytes.buffer, bytes.byteOffset, size);
}

/** A message whose header was found good by `parse`. */
export class Message {
  /** The whole message, header included, exactly `size` bytes; a view of what `parse` was given. */
  readonly bytes: Uint8Array;
  /** Length of the message, bytes. */
  readonly size: number;

  /** @internal */
  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.size = bytes.length;
  }

  get version(): number {
    return uint16At(this.bytes, 4);
  }

  /** All 16 bits, the message type included. */
  get flags(): number {
    return uint16At(this.bytes, 6);
  }

  /** The upper 8 bits of the flags. */
  get type(): number {
    return this.flags >> TYPE_SHIFT;
  }

  get compressed(): boolean {
    return (this.flags & FLAG_COMPRESSED) !== 0;
  }

  get encrypted(): boolean {
    return (this.flags & FLAG_ENCRYPTED) !== 0;
  }

  get signed(): boolean {
    return (this.flags & FLAG_SIGNED) !== 0;
  }

  /** As the header states it: absolute, 0 for a null root. Not checked. */
  get rootOffset(): number {
    return int32At(this.bytes, 8) >>> 0;
  }

  /** The root object, or `NULL_OBJECT` where the root is null, inside the header or beyond the end. */
  root(): ObjectReader {
    const offset = this.rootOffset;
    return objectIn(this.bytes, offset >= HEADER_BYTES && offset < this.bytes.length ? offset : 0);
  }
}
