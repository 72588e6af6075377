/** Reads of what is not there, of pointers that lead astray, and of the null object and list. */
import { describe, expect, test } from "bun:test";
import { NULL_LIST, NULL_OBJECT, parse } from "../../lib/message/index.ts";
import type { ListReader, ObjectReader } from "../../lib/message/index.ts";
import { hex } from "./hex.ts";

function expectZero(object: ObjectReader, field: number): void {
  expect(object.bool(field)).toBe(false);
  expect([object.uint8(field), object.uint16(field), object.uint32(field)]).toEqual([0, 0, 0]);
  expect([object.int8(field), object.int16(field), object.int32(field)]).toEqual([0, 0, 0]);
  expect([object.uint64(field), object.int64(field)]).toEqual([0n, 0n]);
  expect([object.float32(field), object.float64(field)]).toEqual([0, 0]);
  expect(object.text(field)).toBe("");
  expect(object.bytes(field).length).toBe(0);
  expect([object.address(field), object.hash(field), object.signature(field)]).toEqual([null, null, null]);
  expect(object.fixedBytes(field, 1)).toBeNull();
  expect(object.object(field)).toBe(NULL_OBJECT);
  expect(object.list(field, 1)).toBe(NULL_LIST);
}

function expectEmpty(list: ListReader): void {
  expect(list.isNull).toBe(true);
  expect([list.length, list.offset]).toEqual([0, 0]);
  expect(list.contents().length).toBe(0);
  for (const index of [0, 1, -1, NaN]) {
    expect([list.uint8(index), list.uint16(index), list.uint32(index)]).toEqual([0, 0, 0]);
    expect([list.int8(index), list.int16(index), list.int32(index)]).toEqual([0, 0, 0]);
    expect([list.uint64(index), list.int64(index)]).toEqual([0n, 0n]);
    expect([list.float32(index), list.float64(index)]).toEqual([0, 0]);
    expect(list.text(index)).toBe("");
    expect(list.bytes(index).length).toBe(0);
    expect(list.fixedBytes(index)).toBeNull();
    expect(list.object(index)).toBe(NULL_OBJECT);
    expect(list.pointer(index)).toBe(NULL_OBJECT);
  }
}

/** The root of a message whose body, from offset 16 on, is `body`; the root starts at 16. */
function rootOf(body: string): ObjectReader {
  const data = hex(body);
  const bytes = new Uint8Array(16 + data.length);
  bytes.set(hex("5a415000 0100 0000 10000000"));
  new DataView(bytes.buffer).setUint32(12, bytes.length, true);
  bytes.set(data, 16);
  return parse(bytes).root();
}

describe("zero values", () => {
  test("the null object is null all the way down", () => {
    expect(NULL_OBJECT.isNull).toBe(true);
    expect(NULL_OBJECT.offset).toBe(0);
    for (const field of [0, 1, 16, -1, NaN]) expectZero(NULL_OBJECT, field);
    expect(NULL_OBJECT.object(0).list(8, 4).pointer(3).object(1).text(2)).toBe("");
    expectEmpty(NULL_LIST);
  });

  test.each([-1, -16, 0.5, NaN, Infinity, -Infinity, 80, 2 ** 31, 2 ** 32, 2 ** 53])(
    "field offset %p",
    (field) => {
      expectZero(rootOf("ff".repeat(80)), field);
    },
  );

  test("a value that begins inside and ends outside is not there", () => {
    const root = rootOf("01020304 05060708");
    expect([root.uint16(6), root.uint16(7)]).toEqual([0x0807, 0]);
    expect([root.int32(4), root.int32(5)]).toEqual([0x08070605, 0]);
    expect([root.float32(5), root.float64(1), root.uint64(1), root.int64(1)]).toEqual([0, 0, 0n, 0n]);
    expect(root.uint64(0)).toBe(0x0807060504030201n);
    expect(root.fixedBytes(4, 4)?.toHex()).toBe("05060708");
    expect(root.fixedBytes(4, 5)).toBeNull();
    for (const width of [0, -1, 1.5, NaN, Infinity, 2 ** 53]) expect(root.fixedBytes(0, width)).toBeNull();
  });
});

describe("text and bytes", () => {
  test("the offset leads forward only", () => {
    // At 16 a slot that leads 8 back (a list could); at 24 one that leads on to 32.
    const root = rootOf("00000000 00000000  f8ffffff 04000000  08000000 03000000  61ff62");
    expect(root.bytes(8).length).toBe(0);
    expect(root.list(8, 1).offset).toBe(16);
    expect(root.bytes(16).toHex()).toBe("61ff62");
    expect(root.text(16)).toBe("a\ufffdb");
  });

  test("bad UTF-8 of every kind reads as replacement characters", () => {
    const read = (data: string): string =>
      rootOf(`08000000 ${Buffer.from([data.length / 2, 0, 0, 0]).toString("hex")} ${data}`).text(0);
    expect(read("c3")).toBe("\ufffd");
    expect(read("c080")).toBe("\ufffd\ufffd");
    expect(read("eda080")).toBe("\ufffd\ufffd\ufffd");
    expect(read("f09f98")).toBe("\ufffd");
    expect(read("f8808080")).toBe("\ufffd\ufffd\ufffd\ufffd");
    expect(read("efbbbf61")).toBe("\ufeffa");
    expect(read("6100")).toBe("a\0");
  });

  test.each([
    ["one byte beyond the end", "08000000 02000000 61"],
    ["length 2^32 - 1", "08000000 ffffffff 61"],
    ["offset 2^32 - 1", "ffffffff 01000000 61"],
    ["offset 0 with a length", "00000000 01000000 61"],
    ["offset without a length", "08000000 00000000 61"],
    ["half a slot", "08000000 010000"],
  ])("%s", (_name, body) => {
    expect(rootOf(body).text(0)).toBe("");
    expect(rootOf(body).bytes(0).length).toBe(0);
  });

  test("bytes are a view of the message", () => {
    const root = rootOf("08000000 02000000 6162");
    const view = root.bytes(0);
    view[0] = 0x7a;
    expect(root.text(0)).toBe("zb");
  });
});

describe("objects and lists", () => {
  test.each([
    ["into the header", "f8ffffff 01000000"],
    ["to the last byte of the header", "ffffffff 01000000"],
    ["before the message", "00000080 01000000"],
    ["to the end", "08000000 01000000"],
    ["far beyond", "ffffff7f 01000000"],
  ])("a pointer that leads %s is null", (_name, body) => {
    expect(rootOf(body).object(0)).toBe(NULL_OBJECT);
    expect(rootOf(body).list(0, 1)).toBe(NULL_LIST);
  });

  test("a list is as long as the rest of the message can hold, or null", () => {
    const slot = (length: string): ObjectReader => rootOf(`08000000 ${length} 01000000 02000000 03`);
    expect(slot("09000000").list(0, 1).length).toBe(9);
    expect(slot("0a000000").list(0, 1)).toBe(NULL_LIST);
    expect(slot("02000000").list(0, 4).uint32(1)).toBe(2);
    expect(slot("03000000").list(0, 4)).toBe(NULL_LIST);
    expect(slot("ffffffff").list(0, 1)).toBe(NULL_LIST);
    expect(slot("ffffffff").list(0, 2 ** 40)).toBe(NULL_LIST);
    for (const stride of [0, -1, 0.5, NaN, Infinity])
      expect(slot("01000000").list(0, stride)).toBe(NULL_LIST);
  });

  test("an index outside the list, and a type wider than the stride, give zero", () => {
    const list = rootOf("08000000 02000000 0101 0202 ffffffffffffffffffff").list(0, 2);
    expect(list.length).toBe(2);
    expect([list.uint16(0), list.uint16(1)]).toEqual([0x0101, 0x0202]);
    for (const index of [2, -1, 0.5, NaN, 2 ** 32]) {
      expect([list.uint16(index), list.uint8(index), list.int8(index)]).toEqual([0, 0, 0]);
      expect(list.fixedBytes(index)).toBeNull();
      expect(list.object(index)).toBe(NULL_OBJECT);
    }
    expect([list.uint32(0), list.int32(0), list.float32(0), list.float64(0)]).toEqual([0, 0, 0, 0]);
    expect([list.uint64(0), list.int64(0)]).toEqual([0n, 0n]);
    expect(list.pointer(0)).toBe(NULL_OBJECT);
    expect(list.bytes(0).length).toBe(0);
    expect(list.uint8(1)).toBe(2);
    expect(list.contents().toHex()).toBe("01010202");
  });

  test("an object that points to itself is read as often as one asks", () => {
    // At 20, a pointer 4 back to the object at 16.
    let object = rootOf("07000000 fcffffff");
    for (let i = 0; i < 1000; i++) object = object.object(4);
    expect([object.offset, object.uint32(0)]).toEqual([16, 7]);
  });
});
