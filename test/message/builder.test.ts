/** What the builder refuses, and what it gets right however its calls are interleaved. */
import { describe, expect, test } from "bun:test";
import { MessageError } from "../../lib/errors/index.ts";
import { MessageBuilder, POINTER_BYTES, parse } from "../../lib/message/index.ts";
import type { ObjectBuilder, ObjectTarget, PlacedList } from "../../lib/message/index.ts";

/** The message of the `ERR_ZAP_MESSAGE_BUILD` that `run` must throw. */
function refused(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(MessageError);
    expect((error as MessageError).code).toBe("ERR_ZAP_MESSAGE_BUILD");
    return (error as MessageError).message;
  }
  throw new Error("nothing was thrown");
}

function object(dataBytes = 16): ObjectBuilder {
  return new MessageBuilder().startObject(dataBytes);
}

/** A value of a wrong type, as plain JavaScript might pass it. */
function wrong<T>(value: unknown): T {
  return value as T;
}

describe("values out of range", () => {
  const cases: [string, (root: ObjectBuilder) => unknown, string][] = [
    ["uint8 256", (o) => o.setUint8(0, 256), "from 0 to 255 is needed, got 256"],
    ["uint8 -1", (o) => o.setUint8(0, -1), "got -1"],
    ["uint8 1.5", (o) => o.setUint8(0, 1.5), "got 1.5"],
    ["uint8 NaN", (o) => o.setUint8(0, NaN), "got NaN"],
    ["uint8 of a string", (o) => o.setUint8(0, wrong("7")), "got a string of 1"],
    ["uint16", (o) => o.setUint16(0, 0x10000), "got 65536"],
    ["uint32", (o) => o.setUint32(0, 2 ** 32), "got 4294967296"],
    ["uint64 too large", (o) => o.setUint64(0, 2n ** 64n), "got 18446744073709551616n"],
    ["uint64 negative", (o) => o.setUint64(0, -1n), "got -1n"],
    ["uint64 of an unsafe number", (o) => o.setUint64(0, 2 ** 53), "got 9007199254740992"],
    ["uint64 of -1", (o) => o.setUint64(0, -1), "got -1"],
    ["uint64 of half", (o) => o.setUint64(0, 0.5), "got 0.5"],
    ["int8", (o) => o.setInt8(0, 128), "from -128 to 127 is needed, got 128"],
    ["int16", (o) => o.setInt16(0, -0x8001), "got -32769"],
    ["int32", (o) => o.setInt32(0, 2 ** 31), "got 2147483648"],
    ["int64", (o) => o.setInt64(0, 2n ** 63n), "got 9223372036854775808n"],
    ["int64 below", (o) => o.setInt64(0, -(2n ** 63n) - 1n), "got -9223372036854775809n"],
    ["float32 too large", (o) => o.setFloat32(0, 1e39), "got 1e+39"],
    ["float64 of a bigint", (o) => o.setFloat64(0, wrong(1n)), "got 1n"],
    ["bool of a number", (o) => o.setBool(0, wrong(1)), "true or false is needed, got 1"],
    ["text of null", (o) => o.setText(0, wrong(null)), "got null"],
    ["text with half a pair", (o) => o.setText(0, "a\ud800"), "half a surrogate pair"],
    ["bytes of an array", (o) => o.setBytes(0, wrong([1])), "got value of type object"],
    ["address of 19", (o) => o.setAddress(0, new Uint8Array(19)), "exactly 20 bytes are needed, got 19"],
    ["hash of 33", (o) => o.setHash(0, new Uint8Array(33)), "exactly 32 bytes are needed, got 33"],
    ["signature of 64", (o) => o.setSignature(0, new Uint8Array(64)), "exactly 65 bytes are needed, got 64"],
    ["object at a foreign offset", (o) => o.setObject(0, 15), "from 16 to 32, is needed; got 15"],
    ["object beyond the end", (o) => o.setObject(0, 33), "got 33"],
    ["object of a string", (o) => o.setObject(0, wrong<ObjectTarget>("x")), "got a string of 1"],
    ["list in the header", (o) => o.setList(0, { offset: 8, length: 1 }), "lies at offset 8"],
    ["list longer than the rest", (o) => o.setList(0, { offset: 16, length: 17 }), "no list of 17 elements"],
    ["list of length 1.5", (o) => o.setList(0, { offset: 16, length: 1.5 }), "no list of 1.5 elements"],
    ["list of undefined", (o) => o.setList(0, wrong<PlacedList>({})), "no list of undefined elements"],
    ["a pointer to itself", (o) => o.setObject(0, o), "would read as null"],
  ];
  test.each(cases)("%s", (_name, set, message) => {
    expect(refused(() => set(object()))).toContain(message);
  });

  test("the extremes themselves are possible, and safe integers are taken for 64 bits", () => {
    const builder = new MessageBuilder();
    builder
      .startObject(48)
      .setUint8(0, 255)
      .setInt8(1, -128)
      .setUint16(2, 65535)
      .setUint32(4, 2 ** 32 - 1)
      .setUint64(8, 2n ** 64n - 1n)
      .setInt64(16, -(2n ** 63n))
      .setInt64(24, Number.MIN_SAFE_INTEGER)
      .setFloat32(32, 3.4028234663852886e38)
      .setFloat64(40, -Infinity)
      .finishAsRoot();
    const root = parse(builder.finish()).root();
    expect([root.uint8(0), root.int8(1), root.uint16(2), root.uint32(4)]).toEqual([
      255,
      -128,
      65535,
      2 ** 32 - 1,
    ]);
    expect([root.uint64(8), root.int64(16)]).toEqual([2n ** 64n - 1n, -(2n ** 63n)]);
    expect(root.int64(24)).toBe(BigInt(Number.MIN_SAFE_INTEGER));
    expect([root.float32(32), root.float64(40)]).toEqual([3.4028234663852886e38, -Infinity]);
  });

  test("64-bit fields take safe integers as well as bigints", () => {
    const builder = new MessageBuilder();
    const signed = [
      0,
      -0,
      1,
      -1,
      2 ** 31,
      2 ** 32,
      -(2 ** 32),
      2 ** 32 - 1,
      -(2 ** 32) - 1,
      2 ** 53 - 1,
      1 - 2 ** 53,
    ];
    for (const value of signed) {
      const object = builder.reset().startObject(16).setInt64(0, value);
      if (value >= 0) object.setUint64(8, value);
      object.finishAsRoot();
      const root = parse(builder.finish()).root();
      expect(root.int64(0)).toBe(BigInt(value));
      if (value >= 0) expect(root.uint64(8)).toBe(BigInt(value));
    }
  });

  test("a refused element leaves the list as it was", () => {
    const builder = new MessageBuilder();
    const list = builder.startList(4).addUint32(1);
    expect(refused(() => list.addUint32(-1))).toContain("got -1");
    expect(list.length).toBe(1);
    const placed = list.addUint32(2).finish();
    builder.startObject(8).setList(0, placed).finishAsRoot();
    const read = parse(builder.finish()).root().list(0, 4);
    expect([read.length, read.uint32(0), read.uint32(1)]).toEqual([2, 1, 2]);
  });
});

describe("fields outside the fixed section", () => {
  const bytes = new Uint8Array(4);
  const cases: [string, (root: ObjectBuilder) => unknown][] = [
    ["bool at the end", (o) => o.setBool(16, true)],
    ["uint8 at -1", (o) => o.setUint8(-1, 1)],
    ["uint8 at 0.5", (o) => o.setUint8(0.5, 1)],
    ["uint8 at NaN", (o) => o.setUint8(NaN, 1)],
    ["uint16 across the end", (o) => o.setUint16(15, 1)],
    ["uint32 across the end", (o) => o.setUint32(13, 1)],
    ["uint64 across the end", (o) => o.setUint64(9, 1n)],
    ["float64 across the end", (o) => o.setFloat64(9, 1)],
    ["text across the end", (o) => o.setText(9, "")],
    ["bytes across the end", (o) => o.setBytes(9, bytes)],
    ["fixed bytes across the end", (o) => o.setFixedBytes(13, bytes)],
    ["address in 16 bytes", (o) => o.setAddress(0, new Uint8Array(20))],
    ["object across the end", (o) => o.setObject(13, 0)],
    ["list across the end", (o) => o.setList(9, null)],
  ];
  test.each(cases)("%s", (_name, set) => {
    expect(refused(() => set(object()))).toContain("is not inside the fixed section of 16 bytes");
  });
});

describe("after the end", () => {
  test("a finished object or list takes nothing more", () => {
    const builder = new MessageBuilder();
    const root = builder.startObject(8);
    root.finish();
    expect(refused(() => root.setUint8(0, 1))).toContain("finished");
    expect(refused(() => root.setText(0, ""))).toContain("finished");
    expect(refused(() => root.finish())).toContain("finished");
    expect(refused(() => root.finishAsRoot())).toContain("finished");
    for (const list of [builder.startList(1), builder.startPointerList(), builder.startTextList()]) {
      list.finish();
      expect(refused(() => list.finish())).toContain("finished");
    }
    const list = builder.startList(1);
    list.finish();
    expect(refused(() => list.addUint8(1))).toContain("finished");
    expect(refused(() => list.addBytes(new Uint8Array(1)))).toContain("finished");
  });

  test("what is still open is counted", () => {
    const builder = new MessageBuilder();
    builder.startObject(8).finishAsRoot();
    builder.startObject(8);
    builder.startList(1);
    builder.startTextList();
    expect(refused(() => builder.finish())).toContain("1 objects, 2 lists");
  });

  test("a message with objects has one root", () => {
    const builder = new MessageBuilder();
    builder.startObject(8).finish();
    expect(refused(() => builder.finish())).toContain("finishAsRoot");
    builder.startObject(8).finishAsRoot();
    const second = builder.startObject(8);
    expect(refused(() => second.finishAsRoot())).toContain("a root already, at offset 24");
    second.finish();
    expect(parse(builder.finish()).rootOffset).toBe(24);
  });

  test("a finished builder gives the same message again, its own copy each time, and starts nothing", () => {
    const builder = new MessageBuilder();
    const list = builder.placeObjects(1, 8);
    builder.startObject(8).setUint32(0, 5).finishAsRoot();
    const first = builder.finish({ type: 1 });
    const second = builder.finish({ type: 2 });
    expect(first.subarray(8)).toEqual(second.subarray(8));
    expect([parse(first).type, parse(second).type]).toEqual([1, 2]);
    first.fill(0);
    expect(parse(second).root().uint32(0)).toBe(5);
    expect(refused(() => builder.startObject(8))).toContain("call reset()");
    expect(refused(() => builder.startList(8))).toContain("call reset()");
    expect(refused(() => builder.startPointerList())).toContain("call reset()");
    expect(refused(() => builder.placeObjects(1, 1))).toContain("call reset()");
    expect(refused(() => list.at(0))).toContain("call reset()");
  });

  test("reset drops everything of the earlier message", () => {
    const builder = new MessageBuilder();
    const object = builder.startObject(8);
    const list = builder.startList(1);
    const objects = builder.placeObjects(1, 8);
    expect(builder.reset().finish().toHex()).toBe("5a415000010000000000000010000000");
    const root = builder.reset().startObject(8);
    expect(refused(() => object.setUint8(0, 1))).toContain("was reset");
    expect(refused(() => object.finish())).toContain("was reset");
    expect(refused(() => list.addUint8(1))).toContain("was reset");
    expect(refused(() => objects.at(0))).toContain("was reset");
    expect(refused(() => root.setObject(0, object))).toContain("was reset");
    expect(refused(() => root.setList(0, list))).toContain("was reset");
    expect(refused(() => root.setList(0, objects))).toContain("was reset");
  });

  test("nothing of another builder can be pointed to", () => {
    const root = object();
    const other = new MessageBuilder();
    expect(refused(() => root.setObject(0, other.startObject(8)))).toContain("another builder");
    expect(refused(() => root.setList(0, other.startList(8)))).toContain("another builder");
    expect(refused(() => root.setList(0, other.placeObjects(1, 8)))).toContain("another builder");
  });
});

describe("arguments", () => {
  test.each([
    ["dataBytes", () => new MessageBuilder().startObject(-1)],
    ["dataBytes", () => new MessageBuilder().startObject(1.5)],
    ["stride", () => new MessageBuilder().startList(0)],
    ["stride", () => new MessageBuilder().placeObjects(1, 0)],
    ["length", () => new MessageBuilder().placeObjects(-1, 8)],
    ["capacity", () => new MessageBuilder({ capacity: -1 })],
    ["bytesMax", () => new MessageBuilder({ bytesMax: 15 })],
    ["bytesMax", () => new MessageBuilder({ bytesMax: 2 ** 32 })],
    ["flags", () => new MessageBuilder().finish({ flags: 0x10000 })],
    ["type", () => new MessageBuilder().finish({ type: 256 })],
    ["flags (beside a type)", () => new MessageBuilder().finish({ type: 0, flags: 0x100 })],
    ["no element 2 in a list of 2", () => new MessageBuilder().placeObjects(2, 8).at(2)],
    ["no element -1", () => new MessageBuilder().placeObjects(2, 8).at(-1)],
    ["2 bytes do not make", () => new MessageBuilder().startList(4).addUint16(1)],
    ["3 bytes do not make", () => new MessageBuilder().startList(4).addFixedBytes(new Uint8Array(3))],
    ["1 bytes do not make", () => new MessageBuilder().startList(4).addBytes(new Uint8Array(4))],
  ])("%s", (message, run) => {
    expect(refused(run)).toContain(message);
  });
});

describe("the largest message", () => {
  test("is built; one byte more is not", () => {
    for (const [bytesMax, fits] of [
      [45, true],
      [44, false],
    ] as const) {
      const builder = new MessageBuilder({ bytesMax });
      const root = builder.startObject(24).setText(0, "12345");
      if (fits) {
        root.finishAsRoot();
        expect(builder.finish().length).toBe(45);
      } else {
        expect(refused(() => root.finish())).toBe("the message would take 45 bytes or more; 44 are allowed");
      }
    }
  });

  test("holds for objects and lists, and for absurd sizes before any memory is taken", () => {
    const builder = new MessageBuilder({ bytesMax: 100, capacity: 1000 });
    expect(refused(() => builder.startObject(85))).toContain("101 bytes");
    expect(refused(() => builder.placeObjects(2 ** 31, 2 ** 31))).toContain("100 are allowed");
    const list = builder.startList(1).addBytes(new Uint8Array(84));
    expect(list.finish().length).toBe(84);
    expect(refused(() => builder.startList(1).addBytes(new Uint8Array(101)))).toContain("100 are allowed");
    expect(refused(() => new MessageBuilder().startObject(2 ** 32 - 1))).toContain("4294967295 are allowed");
  });
});

describe("interleaving", () => {
  test("fields set after children were appended stay in the parent", () => {
    const builder = new MessageBuilder();
    const root = builder.startObject(32);
    const child = builder.startObject(16).setUint64(0, 0xffffffffffffffffn).setUint64(8, 1);
    root.setUint64(16, 0xaaaaaaaaaaaaaaaan);
    const list = builder.startList(2);
    const second = builder.startObject(8).setText(0, "second");
    list.addUint16(1);
    root.setObject(0, child).setList(8, list).setObject(24, second);
    child.finish();
    list.addUint16(2);
    second.finish();
    root.finishAsRoot();
    // The list is finished last: after the root that points to it, and after a sibling that came later.
    list.addUint16(3).finish();
    const read = parse(builder.finish()).root();
    expect([read.object(0).uint64(0), read.object(0).uint64(8)]).toEqual([2n ** 64n - 1n, 1n]);
    expect(read.uint64(16)).toBe(0xaaaaaaaaaaaaaaaan);
    expect(read.object(24).text(0)).toBe("second");
    const values = read.list(8, 2);
    expect([values.length, values.uint16(0), values.uint16(1), values.uint16(2)]).toEqual([3, 1, 2, 3]);
    expect(values.offset % 8).toBe(0);
  });

  test("two lists grow in turn", () => {
    const builder = new MessageBuilder();
    const odd = builder.startList(8);
    const even = builder.startPointerList();
    for (let i = 1n; i < 100n; i += 2n) {
      odd.addUint64(i);
      even.add(
        builder
          .startObject(8)
          .setUint64(0, i + 1n)
          .finish(),
      );
    }
    builder.startObject(16).setList(0, odd).setList(8, even).finishAsRoot();
    even.finish();
    odd.finish();
    const root = parse(builder.finish()).root();
    const odds = root.list(0, 8);
    const evens = root.list(8, POINTER_BYTES);
    expect([odds.length, evens.length]).toEqual([50, 50]);
    for (let i = 0; i < 50; i++) {
      expect(odds.uint64(i)).toBe(BigInt(2 * i + 1));
      expect(evens.pointer(i).uint64(0)).toBe(BigInt(2 * i + 2));
    }
  });

  test("bytes are taken when they are set", () => {
    const builder = new MessageBuilder();
    const bytes = new Uint8Array([1, 2, 3]);
    const root = builder.startObject(8).setBytes(0, bytes);
    bytes.fill(9);
    root.finishAsRoot();
    expect([...parse(builder.finish()).root().bytes(0)]).toEqual([1, 2, 3]);
  });

  test("of two settings of one field the last wins, and leaves nothing of the first", () => {
    const build = (set: (root: ObjectBuilder, builder: MessageBuilder) => unknown): Uint8Array => {
      const builder = new MessageBuilder();
      const root = builder.startObject(16);
      set(root, builder);
      root.finishAsRoot();
      return builder.finish();
    };
    const once = build((root) => root.setText(8, "b").setText(0, "a"));
    expect(build((root) => root.setText(0, "first").setText(8, "b").setText(0, "a"))).toEqual(once);
    const none = build(() => {});
    expect(build((root) => root.setText(0, "first").setText(0, ""))).toEqual(none);
    expect(build((root) => root.setText(0, "first").setList(0, null))).toEqual(none);
    expect(build((root) => root.setBytes(0, new Uint8Array(3)).setObject(0, null))).toEqual(none);
    const list = build((root, builder) => {
      const values = builder.startList(8).addUint64(1);
      root.setList(0, values).setText(0, "a");
      values.finish();
    });
    expect(parse(list).root().text(0)).toBe("a");
  });

  test("a cycle is built and followed only as far as one asks", () => {
    const builder = new MessageBuilder();
    const a = builder.startObject(16).setUint32(0, 1);
    const b = builder.startObject(16).setUint32(0, 2).setObject(8, a);
    a.setObject(8, b).finishAsRoot();
    b.finish();
    let object = parse(builder.finish()).root();
    for (let i = 0; i < 1000; i++) {
      expect(object.uint32(0)).toBe((i % 2) + 1);
      object = object.object(8);
    }
  });

  test("an object without a size shares its place with what follows, and no pointer can tell it from null", () => {
    const builder = new MessageBuilder();
    const empty = builder.startObject(0);
    const root = builder.startObject(8);
    expect(empty.offset).toBe(root.offset);
    expect(refused(() => root.setObject(0, empty))).toContain("give the object a size");
    root.setObject(4, empty);
    empty.finish();
    root.finishAsRoot();
    expect(parse(builder.finish()).root().object(4).offset).toBe(16);
  });
});
