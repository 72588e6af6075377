/** The header check: once for hot paths (no allocation, no exception), once as an error for people. */
import { MessageError } from "../errors/index.ts";
import { HEADER_BYTES, MAGIC, VERSION } from "./format.ts";
import { uint16In, uint32In } from "./load.ts";

/** What can be wrong with a header, in the order in which it is checked. `headerFault` returns an index into this. */
export const HEADER_FAULTS = ["ok", "short", "magic", "version", "size"] as const;
export type HeaderFaultName = (typeof HEADER_FAULTS)[number];

const OK = 0;
const SHORT = 1;
const BAD_MAGIC = 2;
const BAD_VERSION = 3;
const BAD_SIZE = 4;

/**
 * Checks the message that starts at `bytes[start]` and may reach at most `length` bytes from there.
 *
 * Returns 0 where the header is good, else an index into `HEADER_FAULTS`: 1 fewer than 16 bytes (or a range that is not
 * inside `bytes`), 2 magic, 3 version, 4 a size field below 16 or above `length`. Allocates nothing and never throws.
 * `versions` lists what to take in place of version 1 alone.
 */
export function headerFault(
  bytes: Uint8Array,
  start: number,
  length: number,
  versions?: readonly number[],
): number {
  if (!(length >= HEADER_BYTES && start >= 0 && start + length <= bytes.length)) return SHORT;
  if (uint32In(bytes, start) !== MAGIC) return BAD_MAGIC;
  const version = uint16In(bytes, start + 4);
  if (versions === undefined ? version !== VERSION : !versions.includes(version)) return BAD_VERSION;
  const size = uint32In(bytes, start + 12);
  return size >= HEADER_BYTES && size <= length ? OK : BAD_SIZE;
}

/** The error that says what a non-zero `headerFault` of the same arguments means, with what was seen. */
export function headerError(
  fault: number,
  bytes: Uint8Array,
  start: number,
  length: number,
  versions: readonly number[] = [VERSION],
): MessageError {
  switch (fault) {
    case SHORT:
      return new MessageError(
        "ERR_ZAP_MESSAGE_SHORT",
        `a ZAP message has at least ${HEADER_BYTES} bytes, got ${length}`,
      );
    case BAD_MAGIC:
      return new MessageError(
        "ERR_ZAP_MESSAGE_MAGIC",
        `a ZAP message starts with 5a 41 50 00, got ${hex(bytes, start)}`,
      );
    case BAD_VERSION:
      return new MessageError(
        "ERR_ZAP_MESSAGE_VERSION",
        `ZAP version ${versions.join(" or ")} is needed, got ${uint16In(bytes, start + 4)}`,
      );
    default:
      return new MessageError(
        "ERR_ZAP_MESSAGE_SIZE",
        `the size field says ${uint32In(bytes, start + 12)}; ${HEADER_BYTES} to ${length} bytes are possible here`,
      );
  }
}

function hex(bytes: Uint8Array, start: number): string {
  return Array.from(bytes.subarray(start, start + 4), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}
