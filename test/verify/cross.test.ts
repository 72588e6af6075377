/**
 * Libraries that know nothing of each other say the same of random and mutated items. 2,000 for each fast scheme, 100,000 with
 * `ZAP_TEST_SOAK=1`; fewer where one of the two is slow.
 */
import { expect, setDefaultTimeout, test } from "bun:test";
import { createPublicKey, verify } from "node:crypto";
import { ed25519 as edwards } from "@noble/curves/ed25519.js";
import { ml_dsa44, ml_dsa65, ml_dsa87 } from "@noble/post-quantum/ml-dsa.js";
import { slh_dsa_sha2_128f } from "@noble/post-quantum/slh-dsa.js";
import type { Item, Scheme } from "../../lib/index.ts";
import { blsOver } from "../../lib/verify/schemes/bls.ts";
import { nativeBls } from "../../lib/verify/schemes/bls-native.ts";
import { ed25519 } from "../../lib/verify/schemes/ed25519.ts";
import { mlDsa } from "../../lib/verify/schemes/ml-dsa.ts";
import { secp256k1Over } from "../../lib/verify/schemes/secp256k1.ts";
import {
  nativeSecp256k1,
  nobleSecp256k1,
  wasmSecp256k1,
} from "../../lib/verify/schemes/secp256k1-engines.ts";
import { slhDsa } from "../../lib/verify/schemes/slh-dsa.ts";
import { Bytes, items, mutated, reasonsOf, SOAK } from "./kit.ts";

setDefaultTimeout(SOAK ? 3_600_000 : 120_000);

const FAST = SOAK ? 100_000 : 2_000;
/** Items that are made, answered and compared in one go. */
const GO = 500;

type Answers = (batch: readonly Item[]) => readonly unknown[];

/** Runs `count` items, mutated or not, through both, and gives how many were valid. */
function compare(scheme: Scheme, count: number, distinct: number, left: Answers, right: Answers): number {
  const bytes = new Bytes(`cross ${scheme}`);
  const signed = items(scheme, distinct);
  let valid = 0;
  for (let done = 0; done < count; done += GO) {
    const batch = Array.from({ length: Math.min(GO, count - done) }, () => {
      const item = signed[bytes.below(signed.length)]!;
      return mutated(item, bytes);
    });
    const said = left(batch);
    const other = right(batch);
    if (!Bun.deepEquals(said, other)) expect(said).toEqual(other);
    valid += said.filter((each) => each === "valid" || each === true).length;
  }
  // Of four mutations one leaves the item as it was.
  expect(valid).toBeGreaterThan(count / 8);
  expect(valid).toBeLessThan(count / 2);
  return valid;
}

const booleans = (reasons: readonly string[]): boolean[] => reasons.map((reason) => reason === "valid");

test("Ed25519: node:crypto and noble", () => {
  compare(
    "ed25519",
    FAST,
    50,
    (batch) => booleans(reasonsOf(ed25519, batch)),
    (batch) =>
      batch.map(({ publicKey, message, signature }) => {
        try {
          return edwards.verify(signature, message, publicKey, { zip215: false });
        } catch {
          return false;
        }
      }),
  );
});

test("secp256k1: libsecp256k1 as it loads here, and noble", async () => {
  const noble = secp256k1Over(nobleSecp256k1);
  for (const engine of [nativeSecp256k1(), await wasmSecp256k1()]) {
    if (engine === null) continue;
    const verifier = secp256k1Over(engine);
    for (const lowS of [true, false])
      compare(
        "secp256k1",
        FAST / 2,
        50,
        (batch) => reasonsOf(verifier, batch, { lowS }),
        (batch) => reasonsOf(noble, batch, { lowS }),
      );
  }
});

test("BLS12-381: blst, noble, and all at once against one by one", async () => {
  const native = await nativeBls();
  if (native === null) return;
  const many = blsOver(native);
  const noble = blsOver(null);
  compare(
    "bls12-381",
    SOAK ? 2_000 : 120,
    20,
    (batch) => reasonsOf(many, batch),
    (batch) => reasonsOf(noble, batch),
  );
  compare(
    "bls12-381",
    SOAK ? 20_000 : 500,
    20,
    (batch) => reasonsOf(many, batch),
    (batch) => batch.flatMap((item) => reasonsOf(many, [item])),
  );
});

const LATTICES = { "ml-dsa-44": ml_dsa44, "ml-dsa-65": ml_dsa65, "ml-dsa-87": ml_dsa87 } as const;

test.each(["ml-dsa-44", "ml-dsa-65", "ml-dsa-87"] as const)("%s: node:crypto and noble", (scheme) => {
  compare(
    scheme,
    SOAK ? 100_000 : scheme === "ml-dsa-44" ? FAST : 600,
    10,
    (batch) => booleans(reasonsOf(mlDsa(scheme), batch)),
    (batch) =>
      batch.map(({ publicKey, message, signature }) =>
        LATTICES[scheme].verify(signature, message, publicKey),
      ),
  );
});

test("SLH-DSA: what is chosen here, and noble", async () => {
  const verifier = await slhDsa("slh-dsa-sha2-128f");
  compare(
    "slh-dsa-sha2-128f",
    SOAK ? 5_000 : 120,
    3,
    (batch) => booleans(reasonsOf(verifier, batch)),
    (batch) =>
      batch.map(({ publicKey, message, signature }) =>
        slh_dsa_sha2_128f.verify(signature, message, publicKey),
      ),
  );
});

test("Ed25519: nothing is lost between the plain call in a loop and the verifier", () => {
  const batch = items("ed25519", 200, 40);
  const plain = batch.map(({ publicKey, message, signature }) => {
    const jwk = { kty: "OKP", crv: "Ed25519", x: Buffer.from(publicKey).toString("base64url") };
    return verify(null, message, createPublicKey({ key: jwk, format: "jwk" }), signature);
  });
  expect(booleans(reasonsOf(ed25519, batch))).toEqual(plain);
});
