/**
 * The handshake message and the control frames: what two nodes say to each other beside messages.
 * Layout and meaning are in `docs/wire-sockets.md`.
 */
import { HEADER_BYTES, MAGIC } from "../../message/index.ts";
import { NODE_ID_BYTES_MAX } from "../common/node-id.ts";

const HELLO_ROOT_BYTES = 64;
/** The one legal size of a hello, bytes. */
export const HELLO_BYTES = HEADER_BYTES + HELLO_ROOT_BYTES;

/** Said in the message type of the hello; nodes that do not know it ignore it. */
export const HELLO_PLAIN = 0;
/** The speaker is this library: it understands control frames. */
export const HELLO_KIN = 1;
/** The answer of this library to a second connection of the same node: use the first. */
export const HELLO_DUPLICATE = 2;
/** The same as `HELLO_KIN`, by a node that passes messages by RDMA where the other can, too. */
export const HELLO_VERBS = 3;
export type HelloKind = typeof HELLO_PLAIN | typeof HELLO_KIN | typeof HELLO_DUPLICATE | typeof HELLO_VERBS;
const KINDS: readonly HelloKind[] = [HELLO_KIN, HELLO_DUPLICATE, HELLO_VERBS];

export interface Hello {
  readonly nodeId: string;
  readonly kind: HelloKind;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The framed hello: u32 length, 16-byte header, 64 bytes: node id at 0, its length as u32 at 60. */
export function encodeHello(nodeId: string, kind: HelloKind): Uint8Array {
  const frame = new Uint8Array(4 + HELLO_BYTES);
  const view = new DataView(frame.buffer);
  view.setUint32(0, HELLO_BYTES, true);
  view.setUint32(4, MAGIC, true);
  view.setUint16(8, 1, true);
  view.setUint16(10, kind << 8, true);
  view.setUint32(12, HEADER_BYTES, true);
  view.setUint32(16, HELLO_BYTES, true);
  const id = encoder.encode(nodeId);
  frame.set(id, 4 + HEADER_BYTES);
  view.setUint32(4 + HEADER_BYTES + NODE_ID_BYTES_MAX, id.length, true);
  return frame;
}

/** Reads a hello (without its length prefix). Returns the fault as text where it is not one. */
export function decodeHello(bytes: Uint8Array): Hello | string {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < HELLO_BYTES) return `a hello of ${bytes.length} bytes, ${HELLO_BYTES} are needed`;
  if (view.getUint32(0, true) !== MAGIC) return "the hello does not start with the ZAP magic";
  const version = view.getUint16(4, true);
  // Version 2 of the format has the same layout, and later nodes greet with it.
  if (version !== 1 && version !== 2) return `the hello is of version ${version}`;
  const size = view.getUint32(12, true);
  const root = view.getUint32(8, true);
  if (size > bytes.length || root < HEADER_BYTES || root + HELLO_ROOT_BYTES > size) {
    return "the hello's root object lies outside of it";
  }
  const length = view.getUint32(root + NODE_ID_BYTES_MAX, true);
  if (length === 0 || length > NODE_ID_BYTES_MAX) return `the hello has a node id of ${length} bytes`;
  let nodeId: string;
  try {
    nodeId = decoder.decode(bytes.subarray(root, root + length));
  } catch {
    return "the hello's node id is not UTF-8";
  }
  if (/[\u0000-\u001f\u007f]/.test(nodeId)) return "the hello's node id has control characters";
  const said = view.getUint16(6, true) >> 8;
  return { nodeId, kind: KINDS.find((kind) => kind === said) ?? HELLO_PLAIN };
}

/** Frames shorter than a message header are control frames; a node that does not know them drops them. */
export const CONTROL_ACK = 1;
const ACK_BYTES = 9;

/** The framed acknowledgement: u32 length 9, u8 1, u64 messages taken into the receive queue on this connection. */
export function encodeAck(messages: number): Uint8Array {
  const frame = new Uint8Array(4 + ACK_BYTES);
  const view = new DataView(frame.buffer);
  view.setUint32(0, ACK_BYTES, true);
  view.setUint8(4, CONTROL_ACK);
  view.setBigUint64(5, BigInt(messages), true);
  return frame;
}

/** The count in an acknowledgement, or null for any other control frame. */
export function decodeAck(bytes: Uint8Array): number | null {
  if (bytes.length !== ACK_BYTES || bytes[0] !== CONTROL_ACK) return null;
  return Number(new DataView(bytes.buffer, bytes.byteOffset, ACK_BYTES).getBigUint64(1, true));
}
