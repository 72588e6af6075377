/** Messages written out by hand from the format's rules: each must be built byte for byte, and read back. */
import { expect, test } from "bun:test";
import {
  FLAG_COMPRESSED,
  FLAG_SIGNED,
  MessageBuilder,
  POINTER_BYTES,
  SLOT_BYTES,
  parse,
} from "../../lib/message/index.ts";
import type { FinishOptions, ListReader, ObjectReader, ScalarListBuilder } from "../../lib/message/index.ts";
import { hex } from "./hex.ts";

function fixture(
  name: string,
  bytes: string,
  build: (builder: MessageBuilder) => void,
  read: (root: ObjectReader) => void,
  finish?: FinishOptions,
): void {
  test(name, () => {
    const expected = hex(bytes);
    const builder = new MessageBuilder({ capacity: 16 });
    build(builder);
    expect(builder.finish(finish).toHex()).toBe(expected.toHex());
    read(parse(expected).root());
    // The memory of an earlier message never shows through.
    builder.reset();
    builder.startObject(200).setFixedBytes(0, new Uint8Array(200).fill(0xee)).finishAsRoot();
    builder.finish();
    builder.reset();
    build(builder);
    expect(builder.finish(finish).toHex()).toBe(expected.toHex());
  });
}

fixture(
  "every scalar",
  `5a415000 0100 0000 10000000 40000000
   01 fe 3412 efbeadde                  # 16: bool, uint8, uint16, uint32
   efcdab8967452301                     # 24: uint64
   fe 00 feff fdffffff                  # 32: int8, a gap, int16, int32
   fcffffffffffffff                     # 40: int64
   0000c03f 00000000                    # 48: float32 1.5, a gap
   00000000000004c0                     # 56: float64 -2.5`,
  (builder) => {
    builder
      .startObject(48)
      .setBool(0, true)
      .setUint8(1, 0xfe)
      .setUint16(2, 0x1234)
      .setUint32(4, 0xdeadbeef)
      .setUint64(8, 0x0123456789abcdefn)
      .setInt8(16, -2)
      .setInt16(18, -2)
      .setInt32(20, -3)
      .setInt64(24, -4n)
      .setFloat32(32, 1.5)
      .setFloat64(40, -2.5)
      .finishAsRoot();
  },
  (root) => {
    expect(root.offset).toBe(16);
    expect(root.isNull).toBe(false);
    expect(root.bool(0)).toBe(true);
    expect(root.bool(17)).toBe(false);
    expect(root.uint8(1)).toBe(0xfe);
    expect(root.uint16(2)).toBe(0x1234);
    expect(root.uint32(4)).toBe(0xdeadbeef);
    expect(root.uint64(8)).toBe(0x0123456789abcdefn);
    expect(root.int8(16)).toBe(-2);
    expect(root.int16(18)).toBe(-2);
    expect(root.int32(20)).toBe(-3);
    expect(root.int64(24)).toBe(-4n);
    expect(root.float32(32)).toBe(1.5);
    expect(root.float64(40)).toBe(-2.5);
    expect(root.uint64(24)).toBe(2n ** 64n - 4n);
  },
);

fixture(
  "text and bytes follow the fixed section, unaligned, in the order of setting; empty ones are null",
  `5a415000 0100 0000 10000000 39000000
   2a00000000000000                     # 16: 42
   1a000000 07000000                    # 24: the text is 26 on, at 50
   10000000 02000000                    # 32: the bytes are 16 on, at 48
   0000000000000000                     # 40: empty text
   dead                                 # 48: set first
   68 c3a9 f09f9880                     # 50: an h, an e with an accent, a smiling face`,
  (builder) => {
    builder
      .startObject(32)
      .setUint64(0, 42)
      .setBytes(16, hex("dead"))
      .setText(24, "")
      .setText(8, "h\u00e9\u{1f600}")
      .finishAsRoot();
  },
  (root) => {
    expect(root.uint64(0)).toBe(42n);
    expect(root.text(8)).toBe("h\u00e9\u{1f600}");
    expect(root.bytes(16)).toEqual(hex("dead"));
    expect(root.text(24)).toBe("");
    expect(root.bytes(24)).toEqual(new Uint8Array(0));
  },
);

fixture(
  "a leading byte order mark is part of the text",
  `5a415000 0100 0000 10000000 1c000000
   08000000 04000000                    # 16: 8 on, at 24
   efbbbf 41                            # 24`,
  (builder) => {
    builder.startObject(8).setText(0, "\ufeffA").finishAsRoot();
  },
  (root) => {
    expect(root.text(0)).toBe("\ufeffA");
    expect(root.text(0).length).toBe(2);
  },
);

fixture(
  "an object written before its parent: the pointer leads back",
  `5a415000 0100 0000 18000000 20000000
   07000000 00000000                    # 16: the child, 4 bytes, and padding
   f8ffffff 00000000                    # 24: the root; 8 back`,
  (builder) => {
    const child = builder.startObject(4).setUint32(0, 7).finish();
    builder.startObject(8).setObject(0, child).setObject(4, 0).finishAsRoot();
  },
  (root) => {
    expect(root.object(0).uint32(0)).toBe(7);
    expect(root.object(0).offset).toBe(16);
    expect(root.object(4).isNull).toBe(true);
  },
);

fixture(
  "an object started inside its parent comes after the parent's fixed section; the parent's text after both",
  `5a415000 0100 0000 10000000 31000000
   10000000 00000000                    # 16: the root; the child is 16 on, at 32
   15000000 04000000                    # 24: its text is 21 on, at 45
   08000000 05000000                    # 32: the child; its text is 8 on, at 40
   6368696c64                           # 40: child
   726f6f74                             # 45: root`,
  (builder) => {
    const root = builder.startObject(16).setText(8, "root");
    const child = builder.startObject(8).setText(0, "child");
    root.setObject(0, child);
    child.finish();
    root.finishAsRoot();
  },
  (root) => {
    expect(root.text(8)).toBe("root");
    expect(root.object(0).text(0)).toBe("child");
  },
);

// One list alone, then the root (one slot) at the next boundary.
function listFixture(
  kind: string,
  stride: number,
  bytes: string,
  add: (list: ScalarListBuilder) => void,
  read: (list: ListReader) => unknown[],
  expected: unknown[],
): void {
  fixture(
    `a list of ${kind}`,
    bytes,
    (builder) => {
      const list = builder.startList(stride);
      add(list);
      const placed = list.finish();
      builder.startObject(8).setList(0, placed).finishAsRoot();
    },
    (root) => {
      const list = root.list(0, stride);
      expect(list.length).toBe(expected.length);
      expect(list.isNull).toBe(false);
      expect(read(list)).toEqual(expected);
    },
  );
}

function each<T>(list: ListReader, get: (index: number) => T): T[] {
  return Array.from({ length: list.length }, (_, index) => get(index));
}

listFixture(
  "uint8",
  1,
  "5a415000 0100 0000 18000000 20000000  01ff7f 0000000000  f8ffffff 03000000",
  (list) => list.addUint8(1).addUint8(255).addUint8(127),
  (list) => each(list, (i) => list.uint8(i)),
  [1, 255, 127],
);

listFixture(
  "int8",
  1,
  "5a415000 0100 0000 18000000 20000000  ff80 000000000000  f8ffffff 02000000",
  (list) => list.addInt8(-1).addInt8(-128),
  (list) => each(list, (i) => list.int8(i)),
  [-1, -128],
);

listFixture(
  "uint16",
  2,
  "5a415000 0100 0000 18000000 20000000  3412 ffff 00000000  f8ffffff 02000000",
  (list) => list.addUint16(0x1234).addUint16(0xffff),
  (list) => each(list, (i) => list.uint16(i)),
  [0x1234, 0xffff],
);

listFixture(
  "int16",
  2,
  "5a415000 0100 0000 18000000 20000000  ffff 0080 ff7f 0000  f8ffffff 03000000",
  (list) => list.addInt16(-1).addInt16(-0x8000).addInt16(0x7fff),
  (list) => each(list, (i) => list.int16(i)),
  [-1, -0x8000, 0x7fff],
);

listFixture(
  "uint32",
  4,
  "5a415000 0100 0000 18000000 20000000  78563412 ffffffff  f8ffffff 02000000",
  (list) => list.addUint32(0x12345678).addUint32(0xffffffff),
  (list) => each(list, (i) => list.uint32(i)),
  [0x12345678, 0xffffffff],
);

listFixture(
  "int32",
  4,
  "5a415000 0100 0000 20000000 28000000  ffffffff 00000080 ffffff7f 00000000  f0ffffff 03000000",
  (list) => list.addInt32(-1).addInt32(-0x80000000).addInt32(0x7fffffff),
  (list) => each(list, (i) => list.int32(i)),
  [-1, -0x80000000, 0x7fffffff],
);

listFixture(
  "uint64",
  8,
  "5a415000 0100 0000 20000000 28000000  efcdab8967452301 ffffffffffffffff  f0ffffff 02000000",
  (list) => list.addUint64(0x0123456789abcdefn).addUint64(2n ** 64n - 1n),
  (list) => each(list, (i) => list.uint64(i)),
  [0x0123456789abcdefn, 2n ** 64n - 1n],
);

listFixture(
  "int64",
  8,
  "5a415000 0100 0000 20000000 28000000  ffffffffffffffff 0000000000000080  f0ffffff 02000000",
  (list) => list.addInt64(-1).addInt64(-(2n ** 63n)),
  (list) => each(list, (i) => list.int64(i)),
  [-1n, -(2n ** 63n)],
);

listFixture(
  "float32",
  4,
  "5a415000 0100 0000 18000000 20000000  0000c03f 000080ff  f8ffffff 02000000",
  (list) => list.addFloat32(1.5).addFloat32(-Infinity),
  (list) => each(list, (i) => list.float32(i)),
  [1.5, -Infinity],
);

listFixture(
  "float64",
  8,
  "5a415000 0100 0000 18000000 20000000  00000000000004c0  f8ffffff 01000000",
  (list) => list.addFloat64(-2.5),
  (list) => each(list, (i) => list.float64(i)),
  [-2.5],
);

listFixture(
  "bytes (one list of raw bytes)",
  1,
  "5a415000 0100 0000 18000000 20000000  cafebabe 01 000000  f8ffffff 05000000",
  (list) => list.addBytes(hex("cafe")).addBytes(hex("babe01")),
  (list) => [...list.contents()],
  [0xca, 0xfe, 0xba, 0xbe, 1],
);

listFixture(
  "fixed-size byte strings",
  3,
  "5a415000 0100 0000 18000000 20000000  010203 040506 0000  f8ffffff 02000000",
  (list) => list.addFixedBytes(hex("010203")).addFixedBytes(hex("040506")),
  (list) => each(list, (i) => list.fixedBytes(i)?.toHex()),
  ["010203", "040506"],
);

fixture(
  "an empty list is null, and takes the padding of its start",
  `5a415000 0100 0000 20000000 30000000
   08000000 01000000                    # 16: an object; its text is 8 on, at 24
   61 00000000000000                    # 24: a; the list would start at 32
   00000000 00000000                    # 32: the root; no list
   e8ffffff 00000000                    # 40: the object, 24 back`,
  (builder) => {
    const object = builder.startObject(8).setText(0, "a").finish();
    const list = builder.startList(8).finish();
    expect(list).toEqual({ offset: 32, length: 0 });
    builder.startObject(16).setList(0, list).setObject(8, object).finishAsRoot();
  },
  (root) => {
    expect(root.list(0, 8).isNull).toBe(true);
    expect(root.list(0, 8).length).toBe(0);
    expect(root.object(8).text(0)).toBe("a");
  },
);

fixture(
  "a list of objects by pointer",
  `5a415000 0100 0000 30000000 38000000
   0100000000000000                     # 16
   0200000000000000                     # 24
   f0ffffff 00000000 f0ffffff 00000000  # 32: 16 back to 16; null; at 40, 16 back to 24; padding
   f0ffffff 03000000                    # 48: the root`,
  (builder) => {
    const list = builder.startPointerList();
    list.add(builder.startObject(8).setUint64(0, 1).finish());
    list.add(null);
    const last = builder.startObject(8).setUint64(0, 2);
    list.add(last);
    last.finish();
    const placed = list.finish();
    builder.startObject(8).setList(0, placed).finishAsRoot();
  },
  (root) => {
    const list = root.list(0, POINTER_BYTES);
    expect(list.length).toBe(3);
    expect(list.pointer(0).uint64(0)).toBe(1n);
    expect(list.pointer(1).isNull).toBe(true);
    expect(list.pointer(2).uint64(0)).toBe(2n);
  },
);

fixture(
  "a list of inline objects, with texts",
  `5a415000 0100 0000 10000000 3b000000
   08000000 02000000                    # 16: the root; the list is 8 on, at 24
   01000000 00000000 18000000 02000000  # 24: 1; at 32, its text is 24 on, at 56
   02000000 00000000 0a000000 01000000  # 40: 2; at 48, its text is 10 on, at 58
   6161 62                              # 56`,
  (builder) => {
    const root = builder.startObject(8);
    const list = builder.placeObjects(2, 16);
    list.at(0).setUint32(0, 1).setText(8, "aa").finish();
    list.at(1).setUint32(0, 2).setText(8, "b").finish();
    root.setList(0, list).finishAsRoot();
  },
  (root) => {
    const list = root.list(0, 16);
    expect(each(list, (i) => list.object(i).uint32(0))).toEqual([1, 2]);
    expect(each(list, (i) => list.object(i).text(8))).toEqual(["aa", "b"]);
  },
);

fixture(
  "a list of texts and byte strings: slots first, then their bytes",
  `5a415000 0100 0000 30000000 38000000
   18000000 02000000                    # 16: 24 on, at 40
   00000000 00000000                    # 24: empty
   0a000000 01000000                    # 32: 10 on, at 42
   6869 ff 0000000000                   # 40: hi; ff; padding
   e0ffffff 03000000                    # 48: the root; 32 back`,
  (builder) => {
    const list = builder.startTextList().addText("hi").addText("").addBytes(hex("ff"));
    const placed = list.finish();
    builder.startObject(8).setList(0, placed).finishAsRoot();
  },
  (root) => {
    const list = root.list(0, SLOT_BYTES);
    expect(each(list, (i) => list.bytes(i).toHex())).toEqual(["6869", "", "ff"]);
    expect(each(list, (i) => list.text(i))).toEqual(["hi", "", "\ufffd"]);
  },
);

const ADDRESS = "00112233445566778899aabbccddeeff01234567";
const HASH = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20";
const SIGNATURE = `${"a1".repeat(32)}${"b2".repeat(32)}1b`;

fixture(
  "EVM types and other fixed bytes lie in the fixed section",
  `5a415000 0100 0000 10000000 88000000
   00112233445566778899aabbccddeeff01234567                          # 16
   0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20  # 36
   a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1  # 68
   b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2
   1b
   c0ffee                                                            # 133`,
  (builder) => {
    builder
      .startObject(120)
      .setAddress(0, hex(ADDRESS))
      .setHash(20, hex(HASH))
      .setSignature(52, hex(SIGNATURE))
      .setFixedBytes(117, hex("c0ffee"))
      .finishAsRoot();
  },
  (root) => {
    expect(root.address(0)?.toHex()).toBe(ADDRESS);
    expect(root.hash(20)?.toHex()).toBe(HASH);
    expect(root.signature(52)?.toHex()).toBe(SIGNATURE);
    expect(root.fixedBytes(117, 3)?.toHex()).toBe("c0ffee");
    expect(root.fixedBytes(117, 4)).toBeNull();
    expect(root.signature(56)).toBeNull();
    expect(root.address(-1)).toBeNull();
    expect(root.fixedBytes(0, 0)).toBeNull();
  },
);

fixture(
  "flags in the lower 8 bits, the type in the upper 8",
  "5a415000 0100 0507 10000000 18000000  0900000000000000",
  (builder) => {
    builder.startObject(8).setUint8(0, 9).finishAsRoot();
  },
  (root) => expect(root.uint8(0)).toBe(9),
  { type: 7, flags: FLAG_COMPRESSED | FLAG_SIGNED },
);

fixture(
  "a bare header",
  "5a415000 0100 00ff 00000000 10000000",
  () => {},
  (root) => expect(root.isNull).toBe(true),
  { flags: 0xff00 },
);
