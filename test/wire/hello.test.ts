import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { ConfigError } from "../../lib/errors/index.ts";
import { checkNodeId } from "../../lib/wire/common/node-id.ts";
import {
  decodeAck,
  decodeHello,
  encodeAck,
  encodeHello,
  HELLO_DUPLICATE,
  HELLO_KIN,
  HELLO_PLAIN,
  type HelloKind,
} from "../../lib/wire/sockets/hello.ts";
import { hex } from "../message/hex.ts";
import { helloOf, joined } from "../support/messages.ts";

/** What a Go node named "go-7" says first, after the length. */
const GO_HELLO = joined(
  hex("5a415000 0100 0000 10000000 50000000  # magic, version, flags, root, size"),
  hex("676f2d37 # go-7"),
  new Uint8Array(56),
  hex("04000000 # length of the id"),
);

const nodeId = fc
  .string({ unit: "grapheme", minLength: 1, maxLength: 20 })
  .filter((id) => Buffer.byteLength(id) <= 60 && !/[\u0000-\u001f\u007f]/.test(id) && id.isWellFormed());

/** `GO_HELLO` with some bytes changed. */
function changed(at: number, ...bytes: number[]): Uint8Array {
  const hello = GO_HELLO.slice();
  hello.set(bytes, at);
  return hello;
}

describe("a hello", () => {
  test("is the frame that Go nodes send, byte for byte", () => {
    expect(encodeHello("go-7", HELLO_PLAIN)).toEqual(joined(hex("50000000"), GO_HELLO));
    expect(decodeHello(GO_HELLO)).toEqual({ nodeId: "go-7", kind: HELLO_PLAIN });
  });

  test("differs for a node of this library in the message type alone", () => {
    const [plain, kin] = [encodeHello("n", HELLO_PLAIN), encodeHello("n", HELLO_KIN)];
    const different = [...plain.keys()].filter((at) => plain[at] !== kin[at]);
    expect(different).toEqual([11]);
    expect(kin[11]).toBe(1);
  });

  test("carries any node id of 1 to 60 bytes, and its kind", () => {
    const kind = fc.constantFrom<HelloKind>(HELLO_PLAIN, HELLO_KIN, HELLO_DUPLICATE);
    fc.assert(
      fc.property(nodeId, kind, (id, given) => {
        checkNodeId(id, "nodeId");
        const frame = encodeHello(id, given);
        expect(frame).toEqual(helloOf(id, given));
        expect(decodeHello(frame.subarray(4))).toEqual({ nodeId: id, kind: given });
      }),
    );
    const longest = "é".repeat(30);
    expect(decodeHello(encodeHello(longest, HELLO_KIN).subarray(4))).toEqual({
      nodeId: longest,
      kind: HELLO_KIN,
    });
  });

  test("may be of version 2, of an unknown type, longer, and with its root further in", () => {
    expect(decodeHello(changed(4, 2))).toEqual({ nodeId: "go-7", kind: HELLO_PLAIN });
    expect(decodeHello(changed(7, 200))).toEqual({ nodeId: "go-7", kind: HELLO_PLAIN });
    const further = joined(
      hex("5a415000 0100 0000 18000000 58000000"),
      new Uint8Array(8),
      GO_HELLO.subarray(16),
    );
    expect(decodeHello(further)).toEqual({ nodeId: "go-7", kind: HELLO_PLAIN });
    expect(decodeHello(joined(GO_HELLO, new Uint8Array(100)))).toEqual({ nodeId: "go-7", kind: HELLO_PLAIN });
  });

  const faults: [string, Uint8Array, string][] = [
    ["empty", new Uint8Array(0), "0 bytes, 80 are needed"],
    ["short", GO_HELLO.subarray(0, 79), "79 bytes, 80 are needed"],
    ["without the magic", changed(0, 0), "magic"],
    ["of version 0", changed(4, 0), "version 0"],
    ["of version 3", changed(4, 3), "version 3"],
    ["with a size beyond its end", changed(12, 81), "outside"],
    ["with a size that cuts its root", changed(12, 79), "outside"],
    ["with a null root", changed(8, 0), "outside"],
    ["with its root in the header", changed(8, 15), "outside"],
    ["with its root beyond the end", changed(8, 17), "outside"],
    ["with its root at 2^32-1", changed(8, 255, 255, 255, 255), "outside"],
    ["with an empty node id", changed(76, 0), "node id of 0 bytes"],
    ["with a node id of 61 bytes", changed(76, 61), "node id of 61 bytes"],
    ["with a node id of 2^32-1 bytes", changed(76, 255, 255, 255, 255), "node id of 4294967295 bytes"],
    ["whose node id is not UTF-8", changed(16, 0xff), "not UTF-8"],
    ["whose node id is cut in a character", changed(19, 0xc3), "not UTF-8"],
    ["whose node id has a line feed", changed(17, 10), "control characters"],
    ["whose node id has a NUL", changed(17, 0), "control characters"],
  ];
  for (const [what, bytes, words] of faults) {
    test(`${what} is refused`, () => expect(decodeHello(bytes)).toContain(words));
  }

  test("of arbitrary bytes is read or refused, and never throws", () => {
    const start = fc.constantFrom(GO_HELLO, new Uint8Array(80), new Uint8Array(79));
    const edits = fc.array(fc.tuple(fc.nat(79), fc.nat(255)), { maxLength: 20 });
    fc.assert(
      fc.property(start, edits, (bytes, changes) => {
        const hello = bytes.slice();
        for (const [at, value] of changes) if (at < hello.length) hello[at] = value;
        const read = decodeHello(hello);
        if (typeof read === "string")
          expect(read).toStartWith(read.includes("a hello of") ? "a hello" : "the hello");
        else expect(Buffer.byteLength(read.nodeId)).toBeGreaterThan(0);
      }),
    );
  });
});

describe("a node id", () => {
  const bad: [string, unknown, string][] = [
    ["empty", "", "is needed"],
    ["not text", 7, "is needed"],
    ["of 61 bytes", "x".repeat(61), "at most 60 bytes, got 61"],
    ["of 31 two-byte characters", "é".repeat(31), "at most 60 bytes, got 62"],
    ["with a tab", "a\tb", "control characters"],
    ["with DEL", "a\u007f", "control characters"],
    ["with half a surrogate pair", "a\ud800", "surrogates"],
  ];
  for (const [what, id, words] of bad) {
    test(`${what} is refused, and the setting named`, () => {
      expect(() => checkNodeId(id as string, "where it stood")).toThrow(ConfigError);
      expect(() => checkNodeId(id as string, "where it stood")).toThrow(words);
      expect(() => checkNodeId(id as string, "where it stood")).toThrow("where it stood");
    });
  }
});

describe("an acknowledgement", () => {
  test("is u32 9, u8 1, u64 count", () => {
    expect(encodeAck(0x0102_0304)).toEqual(hex("09000000 01 0403020100000000"));
  });

  test("carries any count up to 2^53 - 1", () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), (count) => expect(decodeAck(encodeAck(count).subarray(4))).toBe(count)),
    );
  });

  test("is nothing else", () => {
    expect(decodeAck(new Uint8Array(0))).toBeNull();
    expect(decodeAck(hex("02 0000000000000000"))).toBeNull();
    expect(decodeAck(hex("01 00000000000000"))).toBeNull();
    expect(decodeAck(hex("01 000000000000000000"))).toBeNull();
  });
});
