/** Batches and options that nobody should give: an error that says so, or an item that is malformed, and nothing else. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { batchVerify, ConfigError, LimitError, pack, ZapError, type Item } from "../../lib/index.ts";
import { failureOf, within } from "../support/wait.ts";
import { items, spoiled } from "./kit.ts";
import {
  anything,
  hostile,
  longProxy,
  objectOf,
  outOfBounds,
  released,
  resizable,
  revoked,
  STRANGE,
  throwing,
  type Make,
} from "./odd-values.ts";

setDefaultTimeout(30_000);

/** A call with what the types forbid. */
const loose = batchVerify as (scheme: unknown, batch: unknown, options?: unknown) => Promise<unknown>;
const good = items("ed25519", 4);
const [first, second, third] = good as [Item, Item, Item];

async function reasons(batch: unknown): Promise<string[]> {
  const verdicts = (await loose("ed25519", batch, { reasons: true })) as { valid: boolean; reason: string }[];
  return verdicts.map(({ valid, reason }) => {
    expect(valid).toBe(reason === "valid");
    return reason;
  });
}

/** The answer, or the code of the `ZapError` that there was instead; any other error is one of the test. */
async function outcome(...call: Parameters<typeof loose>): Promise<unknown[] | string> {
  try {
    return (await within(loose(...call), "an answer", 10_000)) as unknown[];
  } catch (error) {
    if (error instanceof ZapError) return error.code;
    throw error;
  }
}

describe("items", () => {
  test("that are none, beside good ones", async () => {
    const odd = STRANGE.map((make) => make());
    const batch = odd.flatMap((each) => [first, each]).concat(second);
    expect(await reasons(batch)).toEqual([...odd.flatMap(() => ["valid", "item"]), "valid"]);
  });

  test("with parts that are none", async () => {
    for (const name of ["publicKey", "message", "signature"] as const) {
      const odd = STRANGE.map((make) => make());
      const batch = odd.flatMap((each) => [first, { ...second, [name]: each }]);
      expect(await reasons([...batch, third])).toEqual([...odd.flatMap(() => ["valid", "item"]), "valid"]);
    }
  });

  test("with getters that throw, and items behind proxies", async () => {
    const batch = [
      ...[first, throwing("publicKey", second), throwing("message", second), throwing("signature", second)],
      ...[new Proxy(second, {}), revoked(second), hostile(second), Object.create(third) as Item],
    ];
    expect(await reasons(batch)).toEqual(["valid", "item", "item", "item", "valid", "item", "item", "valid"]);
  });

  test("of bytes that say that they are longer or shorter than they are", async () => {
    const liar = (bytes: Uint8Array, length: unknown): Uint8Array =>
      Object.defineProperties(bytes.slice(), {
        length: { value: length },
        byteOffset: { value: 1 },
        buffer: { get: () => new ArrayBuffer(3) },
        subarray: { value: null },
      });
    const batch = [0, 5, 2 ** 31, 2 ** 40, -1, NaN, "many"].map((length) => ({
      publicKey: liar(first.publicKey, length),
      message: liar(first.message, length),
      signature: liar(first.signature, length),
    }));
    expect(await reasons(batch)).toEqual(batch.map(() => "valid"));
    class Liar extends Uint8Array {
      override get length(): number {
        return 64;
      }
    }
    expect(await reasons([{ ...first, signature: new Liar(5) }, first])).toEqual([
      "signature-length",
      "valid",
    ]);
    const short = { ...first, signature: liar(first.signature.subarray(1), 64) };
    expect(await reasons([short, first])).toEqual(["signature-length", "valid"]);
  });

  test("of bytes that were released before, or lie outside of a buffer that has shrunk", async () => {
    for (const gone of [released, outOfBounds])
      for (const name of ["publicKey", "message", "signature"] as const)
        for (const bytes of [second[name], new Uint8Array(2)]) {
          const item = { ...second, [name]: gone(bytes) };
          expect(await reasons([first, item, third])).toEqual(["valid", "item", "valid"]);
        }
    // A view that follows its buffer is as long as that.
    const [, buffer] = resizable(second.publicKey);
    const following = new Uint8Array(buffer);
    buffer.resize(31);
    expect(await reasons([{ ...second, publicKey: following }])).toEqual(["public-key-length"]);
  });
});

describe("lists", () => {
  test("with holes, and with properties of their own", async () => {
    const holes = [first, , second, ,] as unknown[]; // prettier-ignore
    expect(await reasons(holes)).toEqual(["valid", "item", "valid", "item"]);
    const more = Object.assign([first], { bytes: 3, count: 9 });
    expect(await reasons(more)).toEqual(["valid"]);
  });

  test("behind proxies", async () => {
    expect(await reasons(new Proxy(good, {}))).toEqual(good.map(() => "valid"));
    expect(await reasons(longProxy(good, 6))).toEqual([...good.map(() => "valid"), "item", "item"]);
    expect(await reasons(longProxy(good, 2))).toEqual(["valid", "valid"]);
    for (const length of [-1, 1.5, NaN, Infinity, "3", undefined, null, 3n, {}, hostile({})])
      expect(await failureOf(loose("ed25519", longProxy(good, length)))).toBeInstanceOf(ConfigError);
    for (const list of [revoked([]), hostile([]), new Proxy([], { get: () => new Error().cause!.valueOf() })])
      expect(await failureOf(loose("ed25519", list))).toBeInstanceOf(ConfigError);
    const some = new Proxy(good, {
      get(all, name) {
        if (name === "1") throw new Error("mine");
        return Reflect.get(all, name) as unknown;
      },
    });
    expect(await reasons(some)).toEqual(["valid", "item", "valid", "valid"]);
  });

  test("of more items than a batch has are refused at once", async () => {
    for (const list of [new Array(2 ** 32 - 1), new Array(2 ** 20 + 1), longProxy(good, 2 ** 53 - 1)]) {
      const failure = await failureOf(loose("ed25519", list));
      expect(failure).toBeInstanceOf(LimitError);
      expect(failure.message).toContain("at most 1048576 items");
      expect(() => pack(list as Item[])).toThrow(LimitError);
    }
  });

  test("that become shorter while they are looked at", async () => {
    const list: Item[] = [first, second, third];
    const cutting = {
      ...first,
      get publicKey() {
        list.length = 1;
        return first.publicKey;
      },
    };
    list.unshift(cutting);
    expect(await reasons(list)).toEqual(["valid", "item", "item", "item"]);
  });
});

describe("packed batches", () => {
  const packed = pack(good);

  test("that cannot be read", async () => {
    for (const name of ["bytes", "table", "count"])
      for (const batch of [throwing(name, packed), revoked(packed), hostile(packed)])
        expect(await failureOf(loose("ed25519", batch))).toBeInstanceOf(ConfigError);
    const parts = [
      { bytes: new Proxy(packed.bytes, {}) },
      { table: new Proxy(packed.table, {}) },
      ...["4", 4n, null, {}, hostile({}), Infinity, 2 ** 53].map((count) => ({ count })),
    ];
    for (const part of parts)
      expect(await failureOf(loose("ed25519", { ...packed, ...part }))).toBeInstanceOf(ConfigError);
    expect(await reasons(new Proxy(packed, {}))).toEqual(good.map(() => "valid"));
  });

  test("are read once", async () => {
    const looks: string[] = [];
    const shy = Object.fromEntries([]) as object;
    for (const name of ["bytes", "table", "count"] as const)
      Object.defineProperty(shy, name, {
        get() {
          looks.push(name);
          return packed[name];
        },
      });
    expect(await reasons(shy)).toEqual(good.map(() => "valid"));
    expect(looks.sort()).toEqual(["bytes", "count", "table"]);
  });

  test("are as long as they are, whatever they say", async () => {
    const bytes = Object.defineProperties(packed.bytes.slice(), {
      length: { value: 2 ** 31 },
      subarray: { value: null },
    });
    const table = Object.defineProperties(packed.table.slice(), {
      length: { value: 6 },
      subarray: { value: null },
    });
    expect(await reasons({ bytes, table, count: 4 })).toEqual(good.map(() => "valid"));
    const far = packed.table.slice();
    far[4] = packed.bytes.length;
    expect(await reasons({ bytes, table: far, count: 4 })).toEqual(["item", "valid", "valid", "valid"]);
    const long = Object.defineProperty(new Uint32Array(6), "length", { value: 24 });
    expect(await failureOf(loose("ed25519", { bytes, table: long, count: 4 }))).toBeInstanceOf(ConfigError);
  });

  test("of too many items, or of 4 GiB, are refused; one byte less is not", async () => {
    const table = new Uint32Array(12);
    const count = 2 ** 20 + 1;
    expect(await failureOf(loose("ed25519", { ...packed, count }))).toBeInstanceOf(LimitError);
    const whole = new Uint8Array(new SharedArrayBuffer(2 ** 32));
    const failure = await failureOf(loose("ed25519", { bytes: whole, table, count: 1 }));
    expect(failure).toBeInstanceOf(LimitError);
    expect(failure.message).toContain("4 GiB less one");
    const most = whole.subarray(1);
    most.set(first.publicKey, 0xffff_ffff - 32);
    most.set(first.signature, 0);
    most.set(first.message, 0xffff_ffff - 32 - first.message.length);
    const at = 0xffff_ffff - 32;
    table.set([at, 32, at - first.message.length, first.message.length, 0, 64, at + 1, 32, 0, 0, 0, 64]);
    expect(await reasons({ bytes: most, table, count: 2 })).toEqual(["valid", "item"]);
  });
});

describe("whatever is given", () => {
  interface Given {
    readonly make: Make;
    /** Null: anything but valid. */
    readonly expected: string | null;
  }
  const given = (make: Make, expected: string | null): Given => ({ make, expected });
  const one = fc.nat({ max: good.length - 1 });
  const part = fc.constantFrom("publicKey", "message", "signature");
  const item: fc.Arbitrary<Given> = fc.oneof(
    one.map((at) => given(() => good[at], "valid")),
    one.map((at) => given(() => spoiled(good[at]!), "signature")),
    anything.map((make) => given(make, null)),
    fc.tuple(part, anything).map(([name, make]) => given(() => ({ ...first, [name]: make() }), null)),
  );

  test("as items, good neighbours are valid and bad ones are not", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(item, { maxLength: 20 }), async (list) => {
        const found = await reasons(list.map(({ make }) => make()));
        expect(found).toHaveLength(list.length);
        for (const [at, { expected }] of list.entries())
          if (expected === null) expect(found[at]).not.toBe("valid");
          else expect(found[at]).toBe(expected);
      }),
      { seed: 6, numRuns: 300 },
    );
  });

  test("as a batch, there is an answer that is as long, or an error that says what is wrong", async () => {
    await fc.assert(
      fc.asyncProperty(anything, async (make) => {
        const batch = make();
        const found = await outcome("ed25519", batch);
        if (typeof found === "string") expect(["ERR_ZAP_CONFIG", "ERR_ZAP_LIMIT"]).toContain(found);
        else expect(found).toEqual(Array((batch as unknown[]).length).fill(false));
      }),
      { seed: 6, numRuns: 500 },
    );
  });

  test("as a scheme or as options, likewise", async () => {
    const names = ["backend", "signal", "reasons", "onDeviceError", "context", "digest", "lowS", "form", "x"];
    const options = fc.oneof(anything, objectOf([...names, "ciphersuite", "encoding"], anything, 2));
    const schemes = ["ed25519", "secp256k1", "bls12-381", "ml-dsa-44"].map((scheme) => () => scheme);
    const scheme = fc.oneof({ weight: 4, arbitrary: fc.constantFrom<Make[]>(...schemes) }, anything);
    await fc.assert(
      fc.asyncProperty(scheme, options, async (named, make) => {
        const found = await outcome(named(), [first], make());
        if (typeof found === "string") expect(found).toBe("ERR_ZAP_CONFIG");
        else expect(found).toHaveLength(1);
      }),
      { seed: 6, numRuns: 500 },
    );
  });
});
