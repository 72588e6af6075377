/** Valid ZAP messages of any size whose bytes tell which message they are; made by hand, not by the library. */

/** A pattern that is not periodic in any block size of the library. */
const PATTERN = new Uint8Array(65_521);
for (let i = 0, x = 1; i < PATTERN.length; i++) {
  x = (Math.imul(x, 1_103_515_245) + 12_345) >>> 0;
  PATTERN[i] = x >>> 16;
}

export interface MessageFields {
  readonly type?: number;
  readonly version?: number;
  /** The size field; default: the real size. */
  readonly size?: number;
  readonly magic?: number;
}

/**
 * A message of `bytes` bytes (16 at least). From 20 bytes on it carries `number` as a `u32` at 16, and the bytes behind that
 * depend on `number` too. Its type is 1: Go nodes drop messages of type 0.
 */
export function messageOf(bytes: number, number = 0, fields: MessageFields = {}): Uint8Array {
  const { type = 1, version = 1, size = bytes, magic = 0x0050415a } = fields;
  const message = Buffer.allocUnsafeSlow(bytes);
  const shift = (number * 7_919) % 61_000;
  message.fill(PATTERN.subarray(shift, shift + 4_093));
  message.writeUInt32LE(magic, 0);
  message.writeUInt16LE(version, 4);
  message.writeUInt16LE(type << 8, 6);
  message.writeUInt32LE(0, 8);
  message.writeUInt32LE(size, 12);
  if (bytes >= 20) message.writeUInt32LE(number, 16);
  return new Uint8Array(message.buffer);
}

/** The number that `messageOf` wrote. */
export function numberOf(message: Uint8Array): number {
  return new DataView(message.buffer, message.byteOffset, message.byteLength).getUint32(16, true);
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

/** Whether `message` is `messageOf(message.length, number)`, every byte of it. */
export function isMessage(message: Uint8Array, number: number): boolean {
  return sameBytes(message, messageOf(message.length, number));
}

/** The framing: `u32` length, then the bytes. */
export function frameOf(bytes: Uint8Array): Uint8Array {
  return joined(u32(bytes.length), bytes);
}

export function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

export function joined(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

/** The framed hello of docs/wire-sockets.md, byte by byte; `kind` 0 is what a Go node says. */
export function helloOf(nodeId: string, kind = 0): Uint8Array {
  const frame = Buffer.alloc(84);
  frame.writeUInt32LE(80, 0);
  frame.write("ZAP\0", 4, "latin1");
  frame.writeUInt16LE(1, 8);
  frame.writeUInt16LE(kind << 8, 10);
  frame.writeUInt32LE(16, 12);
  frame.writeUInt32LE(80, 16);
  frame.write(nodeId, 20, "utf8");
  frame.writeUInt32LE(Buffer.byteLength(nodeId), 80);
  return new Uint8Array(frame.buffer, frame.byteOffset, frame.length);
}

/** The framed acknowledgement: `u8` 1, `u64` count. */
export function ackOf(messages: number): Uint8Array {
  const frame = Buffer.alloc(13);
  frame.writeUInt32LE(9, 0);
  frame[4] = 1;
  frame.writeBigUInt64LE(BigInt(messages), 5);
  return new Uint8Array(frame.buffer, frame.byteOffset, frame.length);
}
