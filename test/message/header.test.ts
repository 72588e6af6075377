import { describe, expect, test } from "bun:test";
import { MessageError } from "../../lib/errors/index.ts";
import {
  FLAG_COMPRESSED,
  FLAG_ENCRYPTED,
  FLAG_SIGNED,
  HEADER_FAULTS,
  MessageBuilder,
  headerError,
  headerFault,
  parse,
} from "../../lib/message/index.ts";
import { hex } from "./hex.ts";

const BARE = hex("5a415000 0100 0000 00000000 10000000");

function codeOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof MessageError) return error.code;
    throw error;
  }
  return "no error";
}

/** `BARE` with some bytes changed. */
function bareWith(at: number, ...values: number[]): Uint8Array {
  const bytes = BARE.slice();
  bytes.set(values, at);
  return bytes;
}

describe("parse", () => {
  test("a bare header is a message with a null root", () => {
    const message = parse(BARE);
    expect(message.size).toBe(16);
    expect(message.version).toBe(1);
    expect(message.flags).toBe(0);
    expect(message.type).toBe(0);
    expect(message.rootOffset).toBe(0);
    expect(message.root().isNull).toBe(true);
    expect([message.compressed, message.encrypted, message.signed]).toEqual([false, false, false]);
    expect(message.bytes).toBe(BARE);
  });

  test("flags and type", () => {
    const message = parse(hex("5a415000 0100 05ff 00000000 10000000"));
    expect(message.flags).toBe(0xff05);
    expect(message.type).toBe(255);
    expect([message.compressed, message.encrypted, message.signed]).toEqual([true, false, true]);
    expect(parse(hex("5a415000 0100 0207 00000000 10000000")).encrypted).toBe(true);
    expect([FLAG_COMPRESSED, FLAG_ENCRYPTED, FLAG_SIGNED]).toEqual([1, 2, 4]);
  });

  test.each([
    ["no bytes", new Uint8Array(0), "ERR_ZAP_MESSAGE_SHORT"],
    ["15 bytes", BARE.subarray(0, 15), "ERR_ZAP_MESSAGE_SHORT"],
    ["first byte of the magic", bareWith(0, 0x5b), "ERR_ZAP_MESSAGE_MAGIC"],
    ["last byte of the magic", bareWith(3, 1), "ERR_ZAP_MESSAGE_MAGIC"],
    ["version 0", bareWith(4, 0), "ERR_ZAP_MESSAGE_VERSION"],
    ["version 2", bareWith(4, 2), "ERR_ZAP_MESSAGE_VERSION"],
    ["version 257", bareWith(4, 1, 1), "ERR_ZAP_MESSAGE_VERSION"],
    ["size 0", bareWith(12, 0), "ERR_ZAP_MESSAGE_SIZE"],
    ["size 15", bareWith(12, 15), "ERR_ZAP_MESSAGE_SIZE"],
    ["size one beyond", bareWith(12, 17), "ERR_ZAP_MESSAGE_SIZE"],
    ["size 2^32 - 1", bareWith(12, 255, 255, 255, 255), "ERR_ZAP_MESSAGE_SIZE"],
    ["size 2^31 + 16", bareWith(12, 16, 0, 0, 128), "ERR_ZAP_MESSAGE_SIZE"],
  ])("%s", (_name, bytes, code) => {
    expect(codeOf(() => parse(bytes))).toBe(code);
    const fault = headerFault(bytes, 0, bytes.length);
    expect(`ERR_ZAP_MESSAGE_${HEADER_FAULTS[fault]!.toUpperCase()}`).toBe(code);
  });

  test("what is wrong first is reported first: short, magic, version, size", () => {
    const wrong = hex("00000000 0900 0000 00000000 ffffffff");
    expect(codeOf(() => parse(wrong.subarray(0, 15)))).toBe("ERR_ZAP_MESSAGE_SHORT");
    expect(codeOf(() => parse(wrong))).toBe("ERR_ZAP_MESSAGE_MAGIC");
    wrong.set([0x5a, 0x41, 0x50, 0]);
    expect(codeOf(() => parse(wrong))).toBe("ERR_ZAP_MESSAGE_VERSION");
    wrong[4] = 1;
    expect(codeOf(() => parse(wrong))).toBe("ERR_ZAP_MESSAGE_SIZE");
  });

  test("errors say what was seen", () => {
    expect(() => parse(bareWith(0, 0x13))).toThrow("got 13 41 50 00");
    expect(() => parse(bareWith(4, 7))).toThrow("ZAP version 1 is needed, got 7");
    expect(() => parse(bareWith(12, 99))).toThrow("size field says 99; 16 to 16 bytes");
    expect(() => parse(BARE.subarray(3))).toThrow("at least 16 bytes, got 13");
    expect(() => parse("ZAP" as unknown as Uint8Array)).toThrow("got string");
  });

  test("other versions on request", () => {
    const second = bareWith(4, 2);
    expect(parse(second, { versions: [1, 2] }).version).toBe(2);
    expect(codeOf(() => parse(BARE, { versions: [2] }))).toBe("ERR_ZAP_MESSAGE_VERSION");
    expect(() => parse(bareWith(4, 3), { versions: [1, 2] })).toThrow("version 1 or 2 is needed, got 3");
  });

  test("bytes beyond the size are permitted and not part of the message", () => {
    const message = parse(hex("5a415000 0100 0000 10000000 12000000 aabb ccddeeff"));
    expect(message.size).toBe(18);
    expect(message.bytes.length).toBe(18);
    expect(message.root().uint16(0)).toBe(0xbbaa);
    expect(message.root().uint8(2)).toBe(0);
    expect(message.root().uint32(0)).toBe(0);
  });

  test("a Buffer gives plain Uint8Arrays over the same memory", () => {
    const source = Buffer.from(hex("5a415000 0100 0000 10000000 12000000 aabb"));
    const message = parse(source);
    expect(Object.getPrototypeOf(message.bytes)).toBe(Uint8Array.prototype);
    const view = message.root().fixedBytes(0, 2)!;
    expect(Object.getPrototypeOf(view)).toBe(Uint8Array.prototype);
    expect(view.buffer).toBe(source.buffer);
    source[16] = 0x77;
    expect(view[0]).toBe(0x77);
  });

  test.each([1, 15, 0xffffffff, 18, 19])("a root offset of %p leads nowhere and is null", (offset) => {
    const bytes = hex("5a415000 0100 0000 10000000 12000000 aabb");
    new DataView(bytes.buffer).setUint32(8, offset, true);
    const message = parse(bytes);
    expect(message.rootOffset).toBe(offset);
    expect(message.root().isNull).toBe(true);
    expect(message.root().uint8(0)).toBe(0);
  });

  test("a message whose memory was detached reads as zero", () => {
    const builder = new MessageBuilder();
    builder.startObject(16).setUint32(0, 7).setText(8, "text").finishAsRoot();
    const built = builder.finish();
    const bytes = new Uint8Array(new ArrayBuffer(built.length));
    bytes.set(built);
    const message = parse(bytes);
    const root = message.root();
    expect([root.uint32(0), root.text(8)]).toEqual([7, "text"]);
    (bytes.buffer as ArrayBuffer).transfer(0);
    expect([root.uint32(0), root.uint64(0), root.text(8), root.address(0)]).toEqual([0, 0n, "", null]);
    expect(message.root().isNull).toBe(true);
  });
});

describe("headerFault", () => {
  test("looks at the given range only", () => {
    const bytes = new Uint8Array(64).fill(0xa5);
    bytes.set(BARE, 20);
    expect(headerFault(bytes, 20, 16)).toBe(0);
    expect(headerFault(bytes, 20, 44)).toBe(0);
    expect(HEADER_FAULTS[headerFault(bytes, 20, 15)]).toBe("short");
    expect(HEADER_FAULTS[headerFault(bytes, 19, 20)]).toBe("magic");
    bytes[32] = 17;
    expect(HEADER_FAULTS[headerFault(bytes, 20, 16)]).toBe("size");
    expect(headerFault(bytes, 20, 17)).toBe(0);
  });

  test("a range that is not inside the bytes is short", () => {
    for (const [start, length] of [
      [1, 16],
      [-1, 16],
      [0, 17],
      [NaN, 16],
      [0, NaN],
      [Infinity, 16],
      [0, -1],
    ] as const) {
      expect(HEADER_FAULTS[headerFault(BARE, start, length)]).toBe("short");
    }
  });

  test("versions", () => {
    const second = bareWith(4, 2);
    expect(HEADER_FAULTS[headerFault(second, 0, 16)]).toBe("version");
    expect(headerFault(second, 0, 16, [1, 2])).toBe(0);
    expect(HEADER_FAULTS[headerFault(second, 0, 16, [])]).toBe("version");
  });

  test("headerError names the place's own values", () => {
    const bytes = new Uint8Array(40);
    bytes.set(bareWith(12, 30), 8);
    const error = headerError(headerFault(bytes, 8, 20), bytes, 8, 20);
    expect(error).toBeInstanceOf(MessageError);
    expect(error.code).toBe("ERR_ZAP_MESSAGE_SIZE");
    expect(error.message).toContain("says 30; 16 to 20");
  });
});
