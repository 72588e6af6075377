/** What tests fill a buffer with, so that another owner's bytes would show. */
const scratch = new Uint8Array(2 * 1024 ** 2 + 8);

/** The owner's number, over and over: it differs from any other's within each 4 bytes. At most 2 MiB, valid until the next call. */
export function patternOf(owner: number, bytes: number): Uint8Array {
  new Int32Array(scratch.buffer, 0, (bytes + 3) >> 2).fill(owner | 0x40000000);
  return scratch.subarray(0, bytes);
}
