/** ML-DSA and SLH-DSA: every set, contexts, and the ways by which a batch with a context may go. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { ml_dsa44, ml_dsa65, ml_dsa87 } from "@noble/post-quantum/ml-dsa.js";
import * as noble from "@noble/post-quantum/slh-dsa.js";
import {
  batchVerifyMLDSA,
  batchVerifySLHDSA,
  pack,
  SCHEMES,
  type Item,
  type SlhDsaScheme,
} from "../../lib/index.ts";
import { DEFAULT_PARAMS } from "../../lib/verify/contract.ts";
import { mlDsa } from "../../lib/verify/schemes/ml-dsa.ts";
import { slhDsaOver, wasmCheck } from "../../lib/verify/schemes/slh-dsa.ts";
import { Bytes, flipped, reasonsOf, spoiled } from "./kit.ts";
import { casesOf, hasVectors, withVectors, wycheproof } from "./vectors.ts";

// The small SLH-DSA sets take a second or two for one signature.
setDefaultTimeout(120_000);

const CONTEXTS = [new Uint8Array(0), new Uint8Array([0]), new Uint8Array(255).fill(7)];
const message = new Uint8Array(70).fill(3);

describe.each([
  ["ml-dsa-44", ml_dsa44],
  ["ml-dsa-65", ml_dsa65],
  ["ml-dsa-87", ml_dsa87],
] as const)("%s", (scheme, library) => {
  const { secretKey, publicKey } = library.keygen(new Bytes(scheme).take(32));
  const signed = CONTEXTS.map((context): Item => ({
    publicKey,
    message,
    signature: library.sign(message, secretKey, { context }),
  }));

  test("a signature belongs to its context", async () => {
    for (const [at, context] of CONTEXTS.entries()) {
      const expected = CONTEXTS.map((_, other) => other === at);
      expect(await batchVerifyMLDSA(scheme, signed, { context })).toEqual(expected);
    }
  });

  test("a message of 2 GiB is refused, by its length alone", () => {
    const bytes = new Uint8Array(new SharedArrayBuffer(2 ** 31));
    const table = Uint32Array.of(0, publicKey.length, 0, 2 ** 31, 0, 1);
    for (const context of CONTEXTS) {
      const reasons = reasonsOf(mlDsa(scheme), { bytes, table, count: 1 }, { context });
      expect(reasons).toEqual(["message-length"]);
    }
  });

  test("the answer that comes later is the same", async () => {
    const verifier = mlDsa(scheme);
    const bad = signed.flatMap((item) => [
      item,
      spoiled(item),
      { ...item, signature: item.signature.subarray(1) },
      { ...item, publicKey: item.publicKey.subarray(1) },
      { ...item, signature: flipped(item.signature, 8) },
      { ...item, signature: new Uint8Array(item.signature.length).fill(255) },
      { ...item, publicKey: new Uint8Array(item.publicKey.length) },
    ]);
    for (const shared of [false, true]) {
      const batch = pack([...bad, ...bad], { shared });
      for (const context of CONTEXTS) {
        const params = { ...DEFAULT_PARAMS, context };
        const expected = new Uint8Array(batch.count - 2);
        verifier.verify(batch, 1, batch.count - 1, params, expected);
        const codes = new Uint8Array(batch.count - 2).fill(99);
        const later = verifier.later?.(batch, 1, batch.count - 1, params, codes) ?? null;
        expect(later === null).toBe(context.length === 0);
        await later;
        if (later !== null) expect(codes).toEqual(expected);
        expect(expected.includes(1)).toBe(true);
      }
    }
  });
});

describe.skipIf(!hasVectors)("the official vectors with contexts, by WebCrypto alone and by noble", () => {
  test.each(withVectors(["ml-dsa-44", "ml-dsa-65", "ml-dsa-87"] as const))("%s", async (scheme) => {
    const cases = (await wycheproof(`mldsa_${scheme.slice(-2)}_verify_test`)).flatMap(casesOf);
    for (const [hex, some] of Map.groupBy(cases, ({ vector }) => vector.ctx ?? "")) {
      const context = Uint8Array.fromHex(hex);
      if (context.length === 0 || context.length > 255) continue;
      const codes = new Uint8Array(some.length);
      const later = mlDsa(scheme).later?.(pack(some), 0, some.length, { ...DEFAULT_PARAMS, context }, codes);
      await later;
      expect([...codes].map((code) => code === 1)).toEqual(some.map(({ valid }) => valid));
      const reasons = reasonsOf(mlDsa(scheme), some, { context });
      expect(reasons.map((reason) => reason === "valid")).toEqual(some.map(({ valid }) => valid));
    }
  });
});

const sets = SCHEMES.filter((scheme): scheme is SlhDsaScheme => scheme.startsWith("slh-dsa-"));

/** Signing by noble takes up to ten seconds for the small sets: liboqs does it, and noble signs what has a context for two sets. */
interface Liboqs {
  generateKeyPair(): { publicKey: Uint8Array; secretKey: Uint8Array };
  sign(message: Uint8Array, secretKey: Uint8Array): Uint8Array;
}

async function liboqs(scheme: SlhDsaScheme): Promise<Liboqs> {
  const all: object = await import("@oqs/liboqs-js/sig");
  const name = `createslhdsa${scheme.slice("slh-dsa-".length).replace("-", "")}`;
  for (const [key, create] of Object.entries(all) as [string, () => Promise<Liboqs>][])
    if (key.toLowerCase() === name) return create();
  throw new Error(`liboqs has no ${scheme}`);
}

test("there are twelve sets", () => {
  expect(sets).toHaveLength(12);
});

test.each(sets)("%s", async (scheme) => {
  const signer = await liboqs(scheme);
  const { publicKey, secretKey } = signer.generateKeyPair();
  const item: Item = { publicKey, message, signature: signer.sign(message, secretKey) };
  const bits = item.signature.length * 8;
  const batch: Item[] = [
    item,
    spoiled(item),
    { ...item, signature: flipped(item.signature, 0) },
    { ...item, signature: flipped(item.signature, bits >> 1) },
    { ...item, signature: flipped(item.signature, bits - 1) },
    { ...item, publicKey: flipped(publicKey, 0) },
    { ...item, publicKey: flipped(publicKey, publicKey.length * 8 - 1) },
    { ...item, signature: item.signature.subarray(1) },
    { ...item, publicKey: publicKey.subarray(1) },
    item,
  ];
  const expected = batch.map((_, at) => at === 0 || at === batch.length - 1);
  expect(await batchVerifySLHDSA(scheme, batch)).toEqual(expected);
  const fast = await wasmCheck(scheme);
  expect(fast).not.toBeNull();
  expect(reasonsOf(slhDsaOver(scheme, fast), batch)).toEqual(reasonsOf(slhDsaOver(scheme, null), batch));
  expect(await batchVerifySLHDSA(scheme, [item], { context: new Uint8Array([1]) })).toEqual([false]);
});

test.each(["slh-dsa-sha2-128f", "slh-dsa-shake-128f", "slh-dsa-sha2-192f"] as const)(
  "%s with contexts",
  async (scheme) => {
    const [, , hash, size] = scheme.split("-") as ["", "", "sha2", "128f"];
    const library = noble[`slh_dsa_${hash}_${size}`];
    const { secretKey, publicKey } = library.keygen(new Bytes(scheme).take(library.lengths.seed!));
    const signed = CONTEXTS.map((context): Item => ({
      publicKey,
      message,
      signature: library.sign(message, secretKey, { context }),
    }));
    for (const [at, context] of CONTEXTS.entries()) {
      const expected = CONTEXTS.map((_, other) => other === at);
      expect(await batchVerifySLHDSA(scheme, signed, { context })).toEqual(expected);
    }
  },
);

test("a message that is too long for WebAssembly memory", async () => {
  const { secretKey, publicKey } = noble.slh_dsa_sha2_128f.keygen(new Bytes("long").take(48));
  const long = new Uint8Array(1024 * 1024 + 1).fill(5);
  const item: Item = { publicKey, message: long, signature: noble.slh_dsa_sha2_128f.sign(long, secretKey) };
  expect(await batchVerifySLHDSA("slh-dsa-sha2-128f", [item, spoiled(item)])).toEqual([true, false]);
});
