/**
 * ECDSA signatures in DER: SEQUENCE of INTEGER r and INTEGER s (SEC 1, C.8), in the one way that X.690 allows to write them (the rules of
 * BIP 66): every length in one byte, no byte left over, both integers positive and without needless zeros.
 */

/** Shortest and longest that two integers of 1 to 33 bytes can be. */
export const DER_LEAST = 8;
export const DER_MOST = 72;

const SEQUENCE = 0x30;
const INTEGER = 0x02;

/** r and s as 32 bytes each, big-endian, into `compact` (64 bytes); false where `der` is not such a signature. */
export function readDer(der: Uint8Array, compact: Uint8Array): boolean {
  if (der[0] !== SEQUENCE || der[1] !== der.length - 2) return false;
  compact.fill(0);
  const next = readInteger(der, 2, compact, 0);
  return next !== -1 && readInteger(der, next, compact, 32) === der.length;
}

/** Copies the integer at `at` to the end of 32 bytes of `out`; gives where it ends, -1 where it is none or longer than 32 bytes. */
function readInteger(der: Uint8Array, at: number, out: Uint8Array, offset: number): number {
  const length = der[at + 1];
  if (der[at] !== INTEGER || length === undefined || length === 0 || length > 33) return -1;
  const end = at + 2 + length;
  if (end > der.length) return -1;
  let start = at + 2;
  const first = der[start] ?? 0;
  if (first >= 0x80) return -1;
  if (first === 0 && length > 1) {
    // One zero byte, and only in front of what would read as negative.
    start++;
    if ((der[start] ?? 0) < 0x80) return -1;
  }
  if (end - start > 32) return -1;
  out.set(der.subarray(start, end), offset + 32 - (end - start));
  return end;
}
