/** What is measured: a scheme, in batches of how many, signed by whom. Every item has a key and a message of its own unless a case says otherwise. */
import { createHash, generateKeyPairSync, randomBytes, sign, type KeyObject } from "node:crypto";
import { SecretKey } from "@chainsafe/blst";
import * as tiny from "tiny-secp256k1";
import type { Item, Scheme } from "../../lib/index.ts";
import { items as testItems } from "../../test/verify/kit.ts";

export interface Case {
  readonly scheme: Scheme;
  /** Items of a batch: some tenths of a second on one core. */
  readonly items: number;
  readonly sign: (count: number) => Item[];
  readonly env?: Readonly<Record<string, string>>;
  /** What is out of the ordinary, for people. */
  readonly note?: string;
}

function each(count: number, one: (at: number) => Item): Item[] {
  return Array.from({ length: count }, (_, at) => one(at));
}

function digest(at: number): Uint8Array {
  return new Uint8Array(createHash("sha256").update(`message ${at}`).digest());
}

/** By Bun's own crypto, which signs much faster than JavaScript. */
function builtIn(scheme: Scheme): (count: number) => Item[] {
  // Bun takes names and a format that the types do not know.
  const generate = generateKeyPairSync as unknown as (name: string) => Record<string, KeyObject>;
  return (count) =>
    each(count, (at) => {
      const { publicKey, privateKey } = generate(scheme);
      const raw = publicKey!.export({ format: "raw-public" } as unknown as { format: "jwk" });
      const message = digest(at);
      return {
        publicKey: new Uint8Array(raw as unknown as Uint8Array),
        message,
        signature: new Uint8Array(sign(null, message, privateKey!)),
      };
    });
}

function ecdsa(count: number): Item[] {
  return each(count, (at) => {
    const secret = randomBytes(32);
    const message = digest(at);
    return {
      publicKey: tiny.pointFromScalar(secret, true)!,
      message,
      signature: tiny.sign(message, secret),
    };
  });
}

function bls(messageOf: (at: number) => Uint8Array): (count: number) => Item[] {
  return (count) =>
    each(count, (at) => {
      const secret = SecretKey.fromKeygen(randomBytes(32));
      const message = messageOf(at);
      return {
        publicKey: secret.toPublicKey().toBytes(),
        message,
        signature: secret.sign(message).toBytes(),
      };
    });
}

export const CASES: Readonly<Record<string, Case>> = {
  ed25519: { scheme: "ed25519", items: 8_192, sign: builtIn("ed25519") },
  secp256k1: { scheme: "secp256k1", items: 8_192, sign: ecdsa },
  "ml-dsa-44": { scheme: "ml-dsa-44", items: 8_192, sign: builtIn("ml-dsa-44") },
  "ml-dsa-65": { scheme: "ml-dsa-65", items: 4_096, sign: builtIn("ml-dsa-65") },
  "ml-dsa-87": { scheme: "ml-dsa-87", items: 4_096, sign: builtIn("ml-dsa-87") },
  "slh-dsa-sha2-128f": {
    scheme: "slh-dsa-sha2-128f",
    items: 128,
    sign: (count) => testItems("slh-dsa-sha2-128f", count, 3),
    note: "three different items, since signing takes long",
  },
  "bls12-381": { scheme: "bls12-381", items: 512, sign: bls(digest) },
  "bls-new-keys": {
    scheme: "bls12-381",
    items: 512,
    sign: bls(digest),
    env: { ZAP_VERIFY_BLS_KEYS: "0" },
    note: "no decoded key is kept",
  },
  "bls-one-message": {
    scheme: "bls12-381",
    items: 512,
    sign: bls(() => digest(0)),
    note: "all sign the same message",
  },
};
