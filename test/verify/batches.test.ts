/** What every scheme has in common: batches of any size, bad and malformed items anywhere, packed batches in place. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { batchVerify, pack, type Item, type PackedBatch } from "../../lib/index.ts";
import { items, SIGNERS, spoiled } from "./kit.ts";

// Slow where the cores are busy: big integers in JavaScript.
setDefaultTimeout(60_000);

/** Bytes of a key and of a signature that are one too many and one too few. */
const PARTS = ["publicKey", "signature"] as const;

describe.each(SIGNERS.map(([scheme, , distinct]) => [scheme, distinct] as const))(
  "%s",
  (scheme, distinct) => {
    const good = items(scheme, 33, distinct);
    const all = good.map(() => true);

    test("no item, one, many", async () => {
      expect(await batchVerify(scheme, [])).toEqual([]);
      expect(await batchVerify(scheme, good.slice(0, 1))).toEqual([true]);
      expect(await batchVerify(scheme, good)).toEqual(all);
    });

    test("one bad, at the first, a middle and the last place", async () => {
      for (const at of [0, 1, 16, 31, 32]) {
        const batch = good.with(at, spoiled(good[at]!));
        expect(await batchVerify(scheme, batch)).toEqual(all.with(at, false));
      }
    });

    test("several bad, and all of them", async () => {
      const bad = new Set([2, 3, 11, 20, 31]);
      const batch = good.map((item, at) => (bad.has(at) ? spoiled(item) : item));
      expect(await batchVerify(scheme, batch)).toEqual(good.map((_, at) => !bad.has(at)));
      expect(await batchVerify(scheme, good.map(spoiled))).toEqual(all.map(() => false));
    });

    test("malformed items are false, say why, and leave their neighbours alone", async () => {
      const [item] = good as [Item];
      const none: unknown[] = [
        undefined,
        null,
        7,
        {},
        { ...item, message: "text" },
        { ...item, signature: [1] },
      ];
      const odd: [unknown, string][] = none.map((each) => [each, "item"]);
      for (const part of PARTS) {
        const reason = part === "publicKey" ? "public-key-length" : "signature-length";
        for (const length of [0, item[part].length - 1, item[part].length + 1]) {
          const bytes = new Uint8Array(length);
          bytes.set(item[part].subarray(0, length));
          odd.push([{ ...item, [part]: bytes }, reason]);
        }
      }
      const batch = odd.flatMap(([each]) => [item, each as Item]).concat(item);
      const verdicts = await batchVerify(scheme, batch, { reasons: true });
      expect(verdicts).toHaveLength(batch.length);
      for (const [at, { valid, reason }] of verdicts.entries()) {
        const expected = at % 2 === 0 ? "valid" : odd[at >> 1]![1];
        expect({ at, valid, reason: reason as string }).toEqual({
          at,
          valid: expected === "valid",
          reason: expected,
        });
      }
    });

    test("a batch in the bytes of an envelope is verified in place, at any alignment", async () => {
      const { batch, expected } = envelope(good.slice(0, 9));
      const before = Bun.hash(batch.bytes);
      expect(await batchVerify(scheme, batch)).toEqual(expected);
      expect(Bun.hash(batch.bytes)).toBe(before);
    });

    test("parts outside of the bytes are malformed", async () => {
      const { bytes, table, count } = pack(good.slice(0, 7));
      for (const [at, value] of [
        [0, bytes.length],
        [6 + 1, bytes.length + 1],
        [12 + 2, 0xffff_ffff],
        [18 + 3, 0xffff_ffff],
        [24 + 4, bytes.length - 1],
        [30 + 5, 0x8000_0000],
      ] as const)
        table[at] = value;
      const verdicts = await batchVerify(scheme, { bytes, table, count }, { reasons: true });
      expect(verdicts.map(({ reason }) => reason)).toEqual([...Array(6).fill("item"), "valid"]);
    });

    test("shared memory", async () => {
      const batch = pack(good.slice(0, 5), { shared: true });
      expect(batch.bytes.buffer).toBeInstanceOf(SharedArrayBuffer);
      expect(await batchVerify(scheme, batch)).toEqual([true, true, true, true, true]);
    });

    test("two at once", async () => {
      const [left, right] = await Promise.all([
        batchVerify(scheme, good),
        batchVerify(scheme, good.map(spoiled)),
      ]);
      expect(left).toEqual(all);
      expect(right).toEqual(all.map(() => false));
    });
  },
);

/** A message's bytes with keys, messages and signatures in their own places, the way an application may lay them out. */
function envelope(good: readonly Item[]): { batch: PackedBatch; expected: boolean[] } {
  const bad = 4;
  const parts = good.map((item, at) => (at === bad ? spoiled(item) : item));
  const size = parts.reduce(
    (sum, { publicKey, message, signature }) => sum + publicKey.length + message.length + signature.length,
    0,
  );
  // A node Buffer that is part of a larger one, at an odd place.
  const bytes = Buffer.alloc(size + 4_096).subarray(17, 17 + size + 3_000);
  const table = new Uint32Array(6 * parts.length);
  let next = 3;
  for (const [column, name] of (["signature", "publicKey", "message"] as const).entries()) {
    const place = [4, 0, 2][column]!;
    for (const [at, item] of parts.entries()) {
      bytes.set(item[name], next);
      table[6 * at + place] = next;
      table[6 * at + place + 1] = item[name].length;
      next += item[name].length + 1;
    }
  }
  return { batch: { bytes, table, count: parts.length }, expected: parts.map((_, at) => at !== bad) };
}

test("items may share their parts", async () => {
  const [first, second] = items("ed25519", 2) as [Item, Item];
  const { bytes, table } = pack([first, second]);
  const [k1, , m1, , s1] = [...table.subarray(0, 6)];
  const twice = new Uint32Array([...table.subarray(0, 6), ...table.subarray(0, 6), ...table.subarray(6, 12)]);
  // The third: the second's key with the first's message and signature.
  twice.set([m1!, first.message.length, s1!, 64], 14);
  expect(k1).toBeDefined();
  expect(await batchVerify("ed25519", { bytes, table: twice, count: 3 })).toEqual([true, true, false]);
});
