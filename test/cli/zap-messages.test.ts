import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  chunkMessage,
  encodeCancel,
  encodeEnd,
  encodeReceipt,
  encodeStart,
  readFileMessage,
} from "../../lib/cli/transfer/messages.ts";
import { MessageBuilder, parse } from "../../lib/index.ts";
import { hex, sha256 } from "./zap-kit.ts";

const hash = sha256("abc");

function read(message: Uint8Array) {
  return readFileMessage(parse(message));
}

// Written out by hand from the tables in docs/cli.md: header, root, text or bytes.
describe("the bytes of each message are those of docs/cli.md", () => {
  const header = (type: string, size: number) =>
    `5a415000 0100 00${type} 10000000 ${hex(Uint8Array.of(size))}000000`;
  const id = "0807060504030201";
  for (const [name, message, bytes] of [
    [
      "start",
      encodeStart({ id: 0x0102030405060708n, size: 5, mode: 0o644, version: 1, name: "a.b" }),
      `${header("f1", 51)} ${id} 0500000000000000 a4010000 01000000 08000000 03000000 612e62`,
    ],
    [
      "data",
      chunk(0x0102030405060708n, 258, "hi"),
      `${header("f2", 42)} ${id} 0201000000000000 08000000 02000000 6869`,
    ],
    [
      "end",
      encodeEnd({ id: 0x0102030405060708n, size: 5, hash }),
      `${header("f3", 64)} ${id} 0500000000000000 ${hex(hash)}`,
    ],
    [
      "cancel",
      encodeCancel({ id: 0x0102030405060708n, reason: "no" }),
      `${header("f4", 34)} ${id} 08000000 02000000 6e6f`,
    ],
    [
      "receipt",
      encodeReceipt({ id: 0x0102030405060708n, status: 4, size: 5, hash, reason: "no" }),
      `${header("f5", 82)} ${id} 0500000000000000 ${hex(hash)} 04000000 00000000 08000000 02000000 6e6f`,
    ],
  ] as const) {
    test(name, () => expect(hex(message)).toBe(bytes.replaceAll(" ", "")));
  }
});

function chunk(id: bigint, offset: number, text: string): Uint8Array {
  const { message, bytes, setOffset } = chunkMessage(id, text.length);
  bytes.set(Buffer.from(text));
  setOffset(offset);
  return message;
}

test("what was written is read", () => {
  const id = fc.bigInt({ min: 1n, max: 2n ** 64n - 1n });
  const size = fc.maxSafeNat();
  const uint32 = fc.nat(0xffff_ffff);
  const text = fc.string({ unit: "binary" });
  const hashes = fc.uint8Array({ minLength: 32, maxLength: 32 });
  fc.assert(
    fc.property(id, size, uint32, uint32, text, hashes, (id, size, a, b, text, hash) => {
      expect(read(encodeStart({ id, size, mode: a, version: b, name: text }))).toEqual({
        kind: "start",
        id,
        size,
        mode: a,
        version: b,
        name: text,
      });
      expect(read(encodeEnd({ id, size, hash }))).toEqual({ kind: "end", id, size, hash });
      expect(read(encodeCancel({ id, reason: text }))).toEqual({ kind: "cancel", id, reason: text });
      const receipt = { id, status: a, size, hash, reason: text };
      expect(read(encodeReceipt(receipt))).toEqual({ kind: "receipt", ...receipt });
      const { message, bytes, setOffset } = chunkMessage(id, hash.length);
      bytes.set(hash);
      setOffset(size);
      expect(read(message)).toEqual({ kind: "data", id, offset: size, bytes: hash });
    }),
  );
});

test("a chunk message can be filled again, and its bytes lie in it", () => {
  const { message, bytes, setOffset } = chunkMessage(7n, 3);
  for (const [offset, text] of [
    [0, "abc"],
    [3, "def"],
    [2 ** 40, "ghi"],
  ] as const) {
    bytes.set(Buffer.from(text));
    setOffset(offset);
    expect(read(message)).toEqual({ kind: "data", id: 7n, offset, bytes: new Uint8Array(Buffer.from(text)) });
  }
});

test("half a surrogate pair in a name is replaced, not an error", () => {
  const message = read(encodeStart({ id: 1n, size: 0, mode: 0, version: 1, name: "a\ud800" }));
  expect(message).toMatchObject({ name: "a\ufffd" });
});

test("anything at all is read without an error", () => {
  const types = fc.constantFrom(0, 1, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xff);
  fc.assert(
    fc.property(types, fc.uint8Array({ maxLength: 100 }), fc.nat(130), (type, body, root) => {
      const message = new Uint8Array(16 + body.length);
      message.set(new MessageBuilder().finish({ type }));
      message.set(body, 16);
      const view = new DataView(message.buffer);
      view.setUint32(8, root, true);
      view.setUint32(12, message.length, true);
      const known = read(message);
      if (type < 0xf1 || type > 0xf5) expect(known).toBeNull();
      if (known !== null) expect(known.id).not.toBe(0n);
    }),
  );
});
