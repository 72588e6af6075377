/**
 * Libraries that know nothing of each other say the same of random and mutated items: 2,000 of each fast scheme, or as many as
 * `ZAP_TEST_CROSS` says; fewer where one of the two is slow.
 */
import { expect, setDefaultTimeout, test } from "bun:test";
import { createPublicKey, verify } from "node:crypto";
import { ed25519 as edwards } from "@noble/curves/ed25519.js";
import { ml_dsa44, ml_dsa65, ml_dsa87 } from "@noble/post-quantum/ml-dsa.js";
import { slh_dsa_sha2_128f } from "@noble/post-quantum/slh-dsa.js";
import { createMLDSA44, createMLDSA65, createMLDSA87 } from "@oqs/liboqs-js/sig";
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
import { Bytes, items, mutated, reasonsOf } from "./kit.ts";

const FAST = Number(process.env["ZAP_TEST_CROSS"] ?? 2_000);
const SLOW = Math.min(2_000, Math.ceil(FAST / 16));

setDefaultTimeout(60_000 + FAST * 10);

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

test("secp256k1: libsecp256k1 and noble, and its native build and its WebAssembly", async () => {
  const engines = [nativeSecp256k1(), await wasmSecp256k1()].filter((engine) => engine !== null);
  const [fast, other] = engines.map(secp256k1Over);
  const noble = secp256k1Over(nobleSecp256k1);
  const agree = (count: number, lowS: boolean, left = noble, right = noble): number =>
    compare(
      "secp256k1",
      count,
      50,
      (batch) => reasonsOf(left, batch, { lowS }),
      (batch) => reasonsOf(right, batch, { lowS }),
    );
  agree(FAST, true, fast);
  agree(FAST / 2, false, fast);
  agree(FAST / 4, true, fast, other);
});

test("BLS12-381: blst, noble, and all at once against one by one", async () => {
  const native = await nativeBls();
  if (native === null) return;
  const many = blsOver(native);
  const noble = blsOver(null);
  compare(
    "bls12-381",
    SLOW,
    20,
    (batch) => reasonsOf(many, batch),
    (batch) => reasonsOf(noble, batch),
  );
  compare(
    "bls12-381",
    4 * SLOW,
    20,
    (batch) => reasonsOf(many, batch),
    (batch) => batch.flatMap((item) => reasonsOf(many, [item])),
  );
});

const LATTICES = {
  "ml-dsa-44": [ml_dsa44, createMLDSA44],
  "ml-dsa-65": [ml_dsa65, createMLDSA65],
  "ml-dsa-87": [ml_dsa87, createMLDSA87],
} as const;

test.each(["ml-dsa-44", "ml-dsa-65", "ml-dsa-87"] as const)(
  "%s: node:crypto, liboqs and noble",
  async (scheme) => {
    const [noble, createLiboqs] = LATTICES[scheme];
    const liboqs = await createLiboqs();
    const plain = (batch: readonly Item[]): boolean[] => booleans(reasonsOf(mlDsa(scheme), batch));
    const each = (verifyOne: (item: Item) => boolean) => (batch: readonly Item[]) => batch.map(verifyOne);
    compare(
      scheme,
      FAST,
      10,
      plain,
      each(({ publicKey, message, signature }) => liboqs.verify(message, signature, publicKey)),
    );
    compare(
      scheme,
      SLOW,
      10,
      plain,
      each(({ publicKey, message, signature }) => noble.verify(signature, message, publicKey)),
    );
  },
);

test("SLH-DSA: what is chosen here, and noble", async () => {
  const verifier = await slhDsa("slh-dsa-sha2-128f");
  compare(
    "slh-dsa-sha2-128f",
    SLOW,
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
