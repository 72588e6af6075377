/** Going through a range of a packed batch: bounds and lengths first, then the scheme's own work on views of the three parts. */
import { CODE, TABLE_STRIDE, type PackedBatch } from "../contract.ts";
import { isOutside } from "../rows.ts";

/** What `node:crypto` takes as one message at most, bytes. One that is longer is `message-length` on every backend. */
export const MOST_MESSAGE_BYTES = 0x7fff_ffff;

/** The lengths that a scheme allows; null where there is nothing to say. Lengths are in bytes. */
export interface Lengths {
  readonly publicKey: (length: number) => boolean;
  readonly message: ((length: number) => boolean) | null;
  readonly signature: (length: number) => boolean;
}

/** An index into `REASONS` for an item whose lengths are right. */
export type VerifyOne = (publicKey: Uint8Array, message: Uint8Array, signature: Uint8Array) => number;

/** Where an item's parts lie. */
export interface Place {
  key: number;
  keyLength: number;
  message: number;
  messageLength: number;
  signature: number;
  signatureLength: number;
}

/** Writes `codes[i - from]` for each item of the range: the reason that bounds or lengths give, or what `verifyOne` says. */
export function verifyEach(
  batch: PackedBatch,
  from: number,
  to: number,
  lengths: Lengths,
  codes: Uint8Array,
  verifyOne: VerifyOne,
): void {
  const bytes = plainView(batch.bytes);
  const place = newPlace();
  for (let at = from; at < to; at++) {
    const fault = locate(batch, at, lengths, place);
    codes[at - from] =
      fault ??
      verifyOne(
        bytes.subarray(place.key, place.key + place.keyLength),
        bytes.subarray(place.message, place.message + place.messageLength),
        bytes.subarray(place.signature, place.signature + place.signatureLength),
      );
  }
}

export function newPlace(): Place {
  return { key: 0, keyLength: 0, message: 0, messageLength: 0, signature: 0, signatureLength: 0 };
}

/** Fills `place` for item `at`. Gives the code of what is wrong with its bounds or lengths, null where they are right. */
export function locate(batch: PackedBatch, at: number, lengths: Lengths, place: Place): number | null {
  const { table } = batch;
  const row = at * TABLE_STRIDE;
  if (isOutside(batch, at)) return CODE.item;
  place.key = table[row]!;
  place.keyLength = table[row + 1]!;
  place.message = table[row + 2]!;
  place.messageLength = table[row + 3]!;
  place.signature = table[row + 4]!;
  place.signatureLength = table[row + 5]!;
  if (!lengths.publicKey(place.keyLength)) return CODE.publicKeyLength;
  if (lengths.message !== null && !lengths.message(place.messageLength)) return CODE.messageLength;
  if (!lengths.signature(place.signatureLength)) return CODE.signatureLength;
  return null;
}

/** A plain `Uint8Array` over the same memory; a node `Buffer` makes `subarray` slower. */
export function plainView(bytes: Uint8Array): Uint8Array {
  return bytes.constructor === Uint8Array
    ? bytes
    : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
}

/** Whether the `length` bytes at `at` are below `bound` (as long), both read as one big-endian number. */
export function isBelow(bytes: Uint8Array, at: number, bound: Uint8Array): boolean {
  for (let i = 0; i < bound.length; i++) {
    const difference = (bytes[at + i] ?? 0) - (bound[i] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return false;
}
