/** The messages that a file travels as. `docs/cli.md` shows the layouts as tables; the two must say the same. */
import { MessageBuilder, parse, type Message } from "../../index.ts";

/** Message types. Never 0: Go nodes silently drop plain messages whose flags are all 0. */
export const FILE_START = 0xf1;
export const FILE_DATA = 0xf2;
export const FILE_END = 0xf3;
export const FILE_CANCEL = 0xf4;
export const FILE_RECEIPT = 0xf5;

/** Said in every start message; a receiver refuses what it does not know. */
export const TRANSFER_VERSION = 1;
/** The most file bytes in one data message. */
export const CHUNK_BYTES = 1024 * 1024;

/** What a receipt says. Everything above `ready` means: the file was not saved, and nothing of it is left. */
export const STATUS = {
  /** The file is there, whole, and its hash is the one in the end message. */
  saved: 0,
  /** The start message was taken: data may come. */
  ready: 1,
  /** The file is above the receiver's limit, or did not keep to the size that it was announced with. */
  size: 2,
  /** Too many transfers at once. */
  busy: 3,
  /** The hash is not the one in the end message. */
  hash: 4,
  /** The receiver could not write it. */
  disk: 5,
  /** A message that does not fit here, or a version that the receiver does not know. */
  protocol: 6,
  /** The receiver was stopped, or nothing came for too long. */
  stopped: 7,
} as const;

export interface FileStart {
  readonly kind: "start";
  /** Chosen at random by the sender; names the transfer in all its messages. Not 0. */
  readonly id: bigint;
  /** Bytes. What is above 2^53 is not exact. */
  readonly size: number;
  /** The permission bits, or 0 where they are not known. */
  readonly mode: number;
  readonly version: number;
  readonly name: string;
}

export interface FileData {
  readonly kind: "data";
  readonly id: bigint;
  readonly offset: number;
  /** A view of the message. */
  readonly bytes: Uint8Array;
}

export interface FileEnd {
  readonly kind: "end";
  readonly id: bigint;
  readonly size: number;
  /** SHA-256 over the whole file, 32 bytes; a view of the message. */
  readonly hash: Uint8Array;
}

export interface FileCancel {
  readonly kind: "cancel";
  readonly id: bigint;
  readonly reason: string;
}

export interface FileReceipt {
  readonly kind: "receipt";
  readonly id: bigint;
  /** One of `STATUS`. */
  readonly status: number;
  /** How much of the file the receiver had. */
  readonly size: number;
  /** The SHA-256 that the receiver computed; zeros where it did not come to that. */
  readonly hash: Uint8Array;
  /** For people; empty where the status says it all. */
  readonly reason: string;
}

export type FileMessage = FileStart | FileData | FileEnd | FileCancel | FileReceipt;

const START = { id: 0, size: 8, mode: 16, version: 20, name: 24, dataBytes: 32 } as const;
const DATA = { id: 0, offset: 8, bytes: 16, dataBytes: 24 } as const;
const END = { id: 0, size: 8, hash: 16, dataBytes: 48 } as const;
const CANCEL = { id: 0, reason: 8, dataBytes: 16 } as const;
const RECEIPT = { id: 0, size: 8, hash: 16, status: 48, reason: 56, dataBytes: 64 } as const;

export function encodeStart({ id, size, mode, version, name }: Omit<FileStart, "kind">): Uint8Array {
  const builder = new MessageBuilder();
  const root = builder.startObject(START.dataBytes).setUint64(START.id, id).setUint64(START.size, size);
  root.setUint32(START.mode, mode).setUint32(START.version, version);
  root.setText(START.name, name.toWellFormed()).finishAsRoot();
  return builder.finish({ type: FILE_START });
}

export function encodeEnd({ id, size, hash }: Omit<FileEnd, "kind">): Uint8Array {
  const builder = new MessageBuilder();
  const root = builder.startObject(END.dataBytes).setUint64(END.id, id);
  root.setUint64(END.size, size).setHash(END.hash, hash).finishAsRoot();
  return builder.finish({ type: FILE_END });
}

export function encodeCancel({ id, reason }: Omit<FileCancel, "kind">): Uint8Array {
  const builder = new MessageBuilder();
  const root = builder.startObject(CANCEL.dataBytes).setUint64(CANCEL.id, id);
  root.setText(CANCEL.reason, reason.toWellFormed()).finishAsRoot();
  return builder.finish({ type: FILE_CANCEL });
}

export function encodeReceipt(receipt: Omit<FileReceipt, "kind">): Uint8Array {
  const builder = new MessageBuilder();
  const root = builder.startObject(RECEIPT.dataBytes).setUint64(RECEIPT.id, receipt.id);
  root.setUint64(RECEIPT.size, receipt.size).setHash(RECEIPT.hash, receipt.hash);
  root.setUint32(RECEIPT.status, receipt.status);
  root.setText(RECEIPT.reason, receipt.reason.toWellFormed()).finishAsRoot();
  return builder.finish({ type: FILE_RECEIPT });
}

/** A data message that is built once and filled again for every chunk of one length, so that no chunk is copied. */
export interface ChunkMessage {
  /** The whole message, ready to be sent. */
  readonly message: Uint8Array;
  /** Where the chunk's bytes lie in it. */
  readonly bytes: Uint8Array;
  setOffset(offset: number): void;
}

export function chunkMessage(id: bigint, length: number): ChunkMessage {
  const builder = new MessageBuilder({ capacity: length + 64 });
  const root = builder.startObject(DATA.dataBytes).setUint64(DATA.id, id);
  root.setBytes(DATA.bytes, new Uint8Array(length)).finishAsRoot();
  const message = builder.finish({ type: FILE_DATA });
  const { rootOffset } = parse(message);
  const view = new DataView(message.buffer, message.byteOffset + rootOffset);
  return {
    message,
    bytes: parse(message).root().bytes(DATA.bytes),
    setOffset: (offset) => view.setBigUint64(DATA.offset, BigInt(offset), true),
  };
}

/** What a message says about a file, or null where it is of another kind or makes no sense. */
export function readFileMessage(message: Message): FileMessage | null {
  const root = message.root();
  const id = root.uint64(0);
  if (id === 0n) return null;
  switch (message.type) {
    case FILE_START: {
      const [size, mode, version] = [
        Number(root.uint64(START.size)),
        root.uint32(START.mode),
        root.uint32(START.version),
      ];
      return { kind: "start", id, size, mode, version, name: root.text(START.name) };
    }
    case FILE_DATA:
      return { kind: "data", id, offset: Number(root.uint64(DATA.offset)), bytes: root.bytes(DATA.bytes) };
    case FILE_END: {
      const hash = root.hash(END.hash);
      return hash && { kind: "end", id, size: Number(root.uint64(END.size)), hash };
    }
    case FILE_CANCEL:
      return { kind: "cancel", id, reason: root.text(CANCEL.reason) };
    case FILE_RECEIPT: {
      const hash = root.hash(RECEIPT.hash);
      const [status, size] = [root.uint32(RECEIPT.status), Number(root.uint64(RECEIPT.size))];
      return hash && { kind: "receipt", id, status, size, hash, reason: root.text(RECEIPT.reason) };
    }
    default:
      return null;
  }
}
