/** Lists made into packed batches: what is copied, what is not, and what a batch can hold. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  batchVerifyEd25519,
  ConfigError,
  LimitError,
  pack,
  packMessages,
  type Item,
} from "../../lib/index.ts";
import { packing } from "../../lib/verify/packing.ts";
import { items } from "./kit.ts";

const good = items("ed25519", 4);

function sizeOf({ publicKey, message, signature }: Item): number {
  return publicKey.length + message.length + signature.length;
}

function throwing(name: string): object {
  return Object.defineProperty({}, name, {
    get() {
      throw new Error("mine");
    },
  });
}

describe("packing", () => {
  const shape = ({ bytes, table, count }: ReturnType<typeof pack>, at: number): Item => {
    const [k = 0, kl = 0, m = 0, ml = 0, s = 0, sl = 0] = table.subarray(6 * at, 6 * at + 6);
    expect(at).toBeLessThan(count);
    return {
      publicKey: bytes.slice(k, k + kl),
      message: bytes.slice(m, m + ml),
      signature: bytes.slice(s, s + sl),
    };
  };

  test("copies parts that lie in different buffers", () => {
    const packed = pack(good);
    expect(packed.count).toBe(4);
    for (const [at, item] of good.entries()) expect(shape(packed, at)).toEqual(item);
    const original = good[0]!.publicKey[0]!;
    packed.bytes[packed.table[0]!]! ^= 0xff;
    expect(good[0]!.publicKey[0]).toBe(original);
  });

  test("takes parts of one buffer where they lie, unless shared memory is asked for", () => {
    const buffer = new Uint8Array(1_000).map((_, at) => at);
    const some: Item[] = [0, 1, 2].map((at) => ({
      publicKey: buffer.subarray(100 + at * 200, 132 + at * 200),
      message: buffer.subarray(132 + at * 200, 230 + at * 200),
      signature: buffer.subarray(230 + at * 200, 294 + at * 200),
    }));
    const inPlace = pack(some);
    expect(inPlace.bytes.buffer).toBe(buffer.buffer);
    expect(inPlace.bytes.byteOffset).toBe(100);
    for (const [at, item] of some.entries()) expect(shape(inPlace, at)).toEqual(item);
    const shared = pack(some, { shared: true });
    expect(shared.bytes.buffer).toBeInstanceOf(SharedArrayBuffer);
    expect(shared.table.buffer).toBeInstanceOf(SharedArrayBuffer);
    for (const [at, item] of some.entries()) expect(shape(shared, at)).toEqual(item);
  });

  test("does not keep a large buffer for a few bytes of it", () => {
    const buffer = new Uint8Array(1_000_000);
    const item = { publicKey: buffer.subarray(0, 32), message: buffer.subarray(500_000, 500_010) };
    const packed = pack([{ ...item, signature: buffer.subarray(999_936) }]);
    expect(packed.bytes.length).toBe(32 + 10 + 64);
  });

  test("empty parts, odd items, and parts that are others each time they are asked for", () => {
    const nothing = new Uint8Array(0);
    const packed = pack([{ publicKey: nothing, message: nothing, signature: nothing }]);
    expect([...packed.table]).toEqual([0, 0, 0, 0, 0, 0]);
    let looks = 0;
    const shifty = {
      ...good[0]!,
      get signature() {
        return new Uint8Array(64 + looks++);
      },
    };
    const whole = pack([shifty, good[1]!]);
    expect(looks).toBe(1);
    expect(shape(whole, 0)).toEqual({ ...good[0]!, signature: new Uint8Array(64) });
    expect(shape(whole, 1)).toEqual(good[1]!);
    const odd = pack([good[0]!, { ...good[1]!, message: "text" } as unknown as Item, good[2]!]);
    expect([...odd.table.subarray(6, 12)]).toEqual(Array(6).fill(0xffff_ffff));
    expect(odd.bytes.length).toBe(sizeOf(good[0]!) + sizeOf(good[2]!));
    expect(() => (pack as (batch: unknown) => unknown)("text")).toThrow(ConfigError);
  });

  test("options that are none", () => {
    const loose = pack as (items: Item[], options: unknown) => unknown;
    for (const options of [null, { shared: "auto" }, { shared: 1 }, throwing("shared")])
      expect(() => loose(good, options)).toThrow(ConfigError);
    for (const options of [undefined, {}, { shared: undefined }])
      expect(loose(good, options)).toMatchObject({ count: 4 });
  });

  test("more than a table can address is refused before it is copied", () => {
    const giant = new Uint8Array(1024 ** 3);
    const parts = Array.from({ length: 6 }, (_, at) => giant.subarray(at));
    const [a, b, c, d, e] = parts as [Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array];
    // The views share one buffer, and are together more than a table addresses.
    expect(() =>
      pack([
        { publicKey: a, message: b, signature: c },
        { publicKey: d, message: e, signature: new Uint8Array(1) },
      ]),
    ).toThrow(LimitError);
  });

  test("exactly what a table can address, and one byte more", () => {
    const most = new Uint8Array(new SharedArrayBuffer(2 ** 32), 0, 2 ** 32 - 1);
    const nothing = most.subarray(0, 0);
    const packed = pack([{ publicKey: nothing, message: most, signature: nothing }]);
    expect(packed.bytes.length).toBe(0xffff_ffff);
    expect([...packed.table]).toEqual([0, 0, 0, 0xffff_ffff, 0, 0]);
    const whole = new Uint8Array(most.buffer);
    for (const message of [whole, most]) {
      // In the second, the other parts are what is too much.
      const item = { ...good[0]!, message };
      expect(() => pack([item])).toThrow("at most 4294967295 bytes, 4 GiB less one");
      expect(() => pack([item], { shared: true })).toThrow(LimitError);
    }
    const alone = { publicKey: nothing, message: whole, signature: nothing };
    const small = new Uint8Array(300);
    const close = {
      publicKey: small.subarray(0, 32),
      message: small.subarray(32, 200),
      signature: small.subarray(200),
    };
    for (const items of [
      [alone],
      [...good, alone],
      [alone, ...good],
      [close, alone, close],
      [{ ...close, message: whole }],
    ])
      expect(() => pack(items)).toThrow(LimitError);
  });

  test("a part that items share is copied once", () => {
    const message = new Uint8Array(1024 * 1024).fill(7);
    const many = Array.from({ length: 5_000 }, (_, at) => ({ ...good[at % 4]!, message }));
    const packed = pack(many);
    expect(packed.bytes.length).toBe(message.length + many.length * (32 + 64));
    expect([...new Set(packed.table.filter((_, at) => at % 6 === 2))]).toHaveLength(1);
    for (const at of [0, 1, 4_999]) expect(shape(packed, at)).toEqual(many[at]!);
  });

  test("where it stands in consecutive items as a view of its own, too", () => {
    const buffer = new Uint8Array(20_000).map((_, at) => at);
    for (const [start, length] of [
      [0, 10_000],
      [500, 512],
    ] as const) {
      const many = good.map((item) => ({ ...item, message: buffer.subarray(start, start + length) }));
      const packed = pack(many);
      expect(packed.bytes.length).toBe(length + many.length * (32 + 64));
      for (const [at, item] of many.entries()) expect(shape(packed, at)).toEqual(item);
    }
    // One byte further on, or one byte shorter, is another.
    const others = good.map((item, at) => ({ ...item, message: buffer.subarray(at, 10_000 + (at >> 1)) }));
    const packed = pack(others);
    for (const [at, item] of others.entries()) expect(shape(packed, at)).toEqual(item);
    expect(packed.bytes.length).toBe(others.reduce((sum, item) => sum + sizeOf(item), 0));
  });

  test("where it stands anywhere, if it is large", () => {
    const [long, short] = [new Uint8Array(512).fill(1), new Uint8Array(511).fill(2)];
    const pattern = [long, short, good[0]!.message, long, short, long];
    const many = pattern.map((message, at) => ({ ...good[at % 4]!, message }));
    const packed = pack(many);
    expect(packed.bytes.length).toBe(512 + 2 * 511 + good[0]!.message.length + many.length * (32 + 64));
    for (const [at, item] of many.entries()) expect(shape(packed, at)).toEqual(item);
    // More of them than are remembered, and each of them twice.
    const parts = Array.from({ length: 40_000 }, (_, at) => new Uint8Array(512).fill(at));
    const twice = pack([...parts, ...parts].map((message) => ({ ...good[0]!, message })));
    for (const at of [0, 39_999, 40_000, 79_999])
      expect(shape(twice, at).message).toEqual(parts[at % 40_000]!);
  });

  test("any list comes out as it went in", () => {
    // Few buffers and few places in them, so that parts are often the same.
    const buffers = [0, 1, 2].map((fill) => new Uint8Array(30_000).map((_, at) => at * 7 + fill));
    const views = new Map<string, Uint8Array>();
    const part = fc
      .record({
        buffer: fc.constantFrom(0, 0, 1, 2),
        start: fc.constantFrom(0, 1, 600, 9_000),
        length: fc.constantFrom(0, 1, 32, 511, 512, 1_100, 8_192, 20_000),
        own: fc.boolean(),
      })
      .map(({ buffer, start, length, own }) => {
        const name = `${buffer} ${start} ${length}`;
        const view = buffers[buffer]!.subarray(start, start + length);
        if (own) return view;
        if (!views.has(name)) views.set(name, view);
        return views.get(name)!;
      });
    const item: fc.Arbitrary<Item> = fc.record({ publicKey: part, message: part, signature: part });
    fc.assert(
      fc.property(fc.array(item, { maxLength: 12 }), fc.boolean(), (list, shared) => {
        const packed = pack(list, { shared });
        expect(packed.count).toBe(list.length);
        for (const [at, each] of list.entries()) expect(shape(packed, at)).toEqual(each);
        expect(packed.bytes.length).toBeLessThanOrEqual(
          2 * list.reduce((sum, each) => sum + sizeOf(each), 0),
        );
      }),
      { seed: 6, numRuns: 300 },
    );
  });

  test("goes in steps", () => {
    const steps = packing(
      Array.from({ length: 10_000 }, () => good[0]!),
      false,
    );
    let count = 0;
    for (let step = steps.next(); step.done !== true; step = steps.next()) count++;
    expect(count).toBeGreaterThan(4);
  });

  test("what is released between two steps ends it, whenever that is", () => {
    const memory = (): Uint8Array<ArrayBuffer> => new Uint8Array(9_000 * 100);
    const list = (one: Uint8Array, two: Uint8Array): Item[] =>
      Array.from({ length: 9_000 }, (_, at) => ({
        publicKey: one.subarray(at * 100, at * 100 + 32),
        message: one.subarray(at * 100 + 32, at * 100 + 36),
        signature: two.subarray(at * 100 + 36, at * 100 + 100),
      }));
    for (const isOne of [true, false])
      for (let when = 1; ; when++) {
        const one = memory();
        const two = isOne ? one : memory();
        const steps = packing(list(one, two), "auto", true);
        let step = steps.next();
        for (let at = 1; at < when && step.done !== true; at++) step = steps.next();
        if (step.done === true) {
          expect(when).toBeGreaterThan(6);
          break;
        }
        two.buffer.transfer();
        expect(() => {
          while (steps.next().done !== true);
        }).toThrow("released or changed in size");
      }
  });

  test("messages of an aggregate", () => {
    const packed = packMessages([Uint8Array.of(1, 2), new Uint8Array(0), Uint8Array.of(3)]);
    expect([...packed]).toEqual([2, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 3]);
    const released = new Uint8Array(5);
    released.buffer.transfer();
    for (const odd of [null, 5, undefined, {}, ["text"], [released], [, new Uint8Array(1)]])
      expect(() => packMessages(odd as unknown as Uint8Array[])).toThrow(ConfigError);
  });

  test("a message of 1 MiB that 300 items share is verified", async () => {
    const [item] = items("ed25519", 1) as [Item];
    const message = new Uint8Array(1024 * 1024);
    expect(
      await batchVerifyEd25519(
        Array.from({ length: 300 }, (_, at) => (at % 100 === 0 ? item : { ...item, message })),
      ),
    ).toEqual(Array.from({ length: 300 }, (_, at) => at % 100 === 0));
  });
});
