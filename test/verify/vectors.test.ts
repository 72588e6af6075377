/** Every official vector gets its verdict. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { batchVerify, batchVerifyBLS, batchVerifyEd25519, batchVerifySecp256k1 } from "../../lib/index.ts";
import { nativeBls } from "../../lib/verify/schemes/bls-native.ts";
import { nobleBls } from "../../lib/verify/schemes/bls-noble.ts";
import { casesOf, hasVectors, whyNot, withVectors, wycheproof, type Case } from "./vectors.ts";

// Slow where the cores are busy: big integers in JavaScript.
setDefaultTimeout(60_000);

/** The vectors whose verdict is not what it should be, in words; none of them is what is hoped for. */
function wrong(cases: readonly Case[], answers: readonly boolean[]): string[] {
  expect(answers).toHaveLength(cases.length);
  return cases
    .filter(({ valid }, at) => answers[at] !== valid)
    .map(({ vector }) => `${vector.tcId} (${vector.comment}) should be ${vector.result}`);
}

describe.skipIf(!hasVectors)(`official vectors${whyNot}`, () => {
  test("Ed25519", async () => {
    const cases = (await wycheproof("ed25519_test")).flatMap(casesOf);
    expect(cases).not.toBeEmpty();
    expect(wrong(cases, await batchVerifyEd25519(cases))).toEqual([]);
  });

  test("secp256k1: SHA-256, DER, high S taken", async () => {
    const cases = (await wycheproof("ecdsa_secp256k1_sha256_test")).flatMap(casesOf);
    expect(cases).not.toBeEmpty();
    const answers = await batchVerifySecp256k1(cases, { digest: "sha256", encoding: "der", lowS: false });
    expect(wrong(cases, answers)).toEqual([]);
  });

  test("secp256k1: with low S required, no more than those are valid", async () => {
    const cases = (await wycheproof("ecdsa_secp256k1_sha256_test")).flatMap(casesOf);
    const verdicts = await batchVerifySecp256k1(cases, { digest: "sha256", encoding: "der", reasons: true });
    let high = 0;
    for (const [at, { valid, reason }] of verdicts.entries()) {
      if (cases[at]?.valid === false) expect(valid).toBe(false);
      else if (!valid) {
        expect(reason).toBe("signature-encoding");
        high++;
      }
    }
    expect(high).toBeGreaterThan(0);
    expect(high).toBeLessThan(verdicts.filter(({ valid }) => valid).length);
  });

  for (const scheme of withVectors(["ml-dsa-44", "ml-dsa-65", "ml-dsa-87"])) {
    test(`${scheme}, with contexts`, async () => {
      const file = `mldsa_${scheme.slice(-2)}_verify_test`;
      const cases = (await wycheproof(file)).flatMap(casesOf);
      expect(cases).not.toBeEmpty();
      const byContext = Map.groupBy(cases, ({ vector }) => vector.ctx ?? "");
      expect(byContext.size).toBeGreaterThan(1);
      for (const [hex, some] of byContext) {
        const context = Uint8Array.fromHex(hex);
        if (context.length > 255) {
          expect(some.map(({ valid }) => valid)).not.toContain(true);
          expect(batchVerify(scheme, some, { context })).rejects.toThrow("context has 256 bytes");
        } else expect(wrong(some, await batchVerify(scheme, some, { context }))).toEqual([]);
      }
    });
  }

  test("BLS12-381, the basic scheme", async () => {
    for (const group of await wycheproof("bls_sig_g2_basic_verify_test")) {
      const cases = casesOf(group);
      const { ciphersuite } = group;
      expect(wrong(cases, await batchVerifyBLS(cases, { ciphersuite }))).toEqual([]);
    }
  });

  test("BLS12-381: blst takes the same bytes for keys and signatures as noble", async () => {
    const native = await nativeBls();
    if (native === null) return;
    const noble = nobleBls("any");
    for (const { publicKey, signature } of (await wycheproof("bls_sig_g2_basic_verify_test")).flatMap(
      casesOf,
    )) {
      if (publicKey.length === 48) expect(native.key(publicKey) === null).toBe(noble.key(publicKey) === null);
      if (signature.length === 96)
        expect(native.signature(signature) === null).toBe(noble.signature(signature) === null);
    }
  });
});
