/** The messages of the benchmark: valid ZAP messages of one size, and the check that every receiver makes. */

/** The smallest size that can carry what an END message says. */
export const SIZE_MIN = 24;

/** What a message means to the receiver. It is the ZAP message type: the upper 8 bits of the flags. */
export const DATA = 1;
/** The receiver starts counting after this one: all before it was warm-up. */
export const START = 2;
/** The last message; it says how many DATA messages went out after START. */
export const END = 3;

/** A ZAP message of `size` bytes: the 16-byte header (magic, version, flags, root offset, total size), then filler. */
export function makeMessage(size: number, type: number): Uint8Array {
  const message = new Uint8Array(size).fill(0xa5);
  message.set([0x5a, 0x41, 0x50, 0x00]);
  const view = new DataView(message.buffer);
  view.setUint16(4, 1, true);
  view.setUint16(6, type << 8, true);
  view.setUint32(8, 0, true);
  view.setUint32(12, size, true);
  return message;
}

/** Writes the number of DATA messages into an END message: bytes 16..23, u64, little-endian. */
export function setSent(message: Uint8Array, sent: number): void {
  new DataView(message.buffer, message.byteOffset).setBigUint64(16, BigInt(sent), true);
}

export function getSent(message: Uint8Array): number {
  return Number(new DataView(message.buffer, message.byteOffset).getBigUint64(16, true));
}

/** The type of a message that arrived whole. Throws when it has another length or does not begin with the magic. */
export function checkMessage(message: Uint8Array, size: number): number {
  if (message.length !== size)
    throw new Error(`a message of ${message.length} bytes arrived, expected ${size}`);
  if (message[0] !== 0x5a || message[1] !== 0x41 || message[2] !== 0x50 || message[3] !== 0x00) {
    throw new Error("a message without the magic arrived");
  }
  return message[7]!;
}
