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
  `5a415000 0100 0000 10000000 3f000000
   2a00000000000000                     # 16: 42
   1a000000 05000000                    # 24: text, 26 on, is at 50
   10000000 02000000                    # 32: bytes, 16 on, is at 48
   0000000000000000                     # 40: empty text
   dead                                 # 48: set first
   68656c6c6f                           # 50: hello
   f09f9880c3a9efbfbd                   # 55: not pointed to by the above
  `.replace(/^.*not pointed.*$/m, "f09f9880c3a9efbb").replace("3f000000", "3f000000"),
  (builder) => {
    builder.startObject(32);
  },
  () => {},
);
