/** Signatures for the tests, by libraries that are not the ones under test where there are two, and ways to spoil them. */
import { createHash } from "node:crypto";
import { ed25519 } from "@noble/curves/ed25519.js";
import { bls12_381 } from "@noble/curves/bls12-381.js";
import { secp256k1 } from "@noble/curves/secp256k1.js";
import { ml_dsa44, ml_dsa65, ml_dsa87 } from "@noble/post-quantum/ml-dsa.js";
import { slh_dsa_sha2_128f } from "@noble/post-quantum/slh-dsa.js";
import {
  BLS_POP,
  pack,
  REASONS,
  type Item,
  type PackedBatch,
  type Reason,
  type Scheme,
} from "../../lib/index.ts";
import { DEFAULT_PARAMS, type Params, type SchemeVerifier } from "../../lib/verify/contract.ts";

/** Long runs are for `ZAP_TEST_SOAK=1`. */
export const SOAK = process.env["ZAP_TEST_SOAK"] === "1";

/** Bytes that are the same in every run: SHA-512 of a counter, as many as asked for. */
export class Bytes {
  readonly #seed: string;
  #at = 0;

  constructor(seed: string) {
    this.#seed = seed;
  }

  take(count: number): Uint8Array {
    const out = new Uint8Array(count);
    for (let at = 0; at < count; at += 64) {
      const block = createHash("sha512").update(`${this.#seed} ${this.#at++}`).digest();
      out.set(block.subarray(0, Math.min(64, count - at)), at);
    }
    return out;
  }

  /** A whole number from 0 to below `limit`. */
  below(limit: number): number {
    const [a = 0, b = 0, c = 0, d = 0] = this.take(4);
    return (((a << 24) | (b << 16) | (c << 8) | d) >>> 0) % limit;
  }
}

/** Makes a valid item of the scheme. */
export type Signer = (bytes: Bytes) => Item;

function ecdsa(bytes: Bytes): Item {
  const secret = secp256k1.utils.randomSecretKey(bytes.take(48));
  const message = bytes.take(32);
  return {
    publicKey: secp256k1.getPublicKey(secret, bytes.below(2) === 0),
    message,
    signature: secp256k1.sign(message, secret, { prehash: false }),
  };
}

function edwards(bytes: Bytes): Item {
  const secret = bytes.take(32);
  const message = bytes.take(bytes.below(200));
  return { publicKey: ed25519.getPublicKey(secret), message, signature: ed25519.sign(message, secret) };
}

/** A BLS secret key. */
export function blsSecret(bytes: Bytes): Uint8Array {
  return bls12_381.utils.randomSecretKey(bytes.take(48));
}

export function blsKey(secret: Uint8Array): Uint8Array {
  return bls12_381.longSignatures.getPublicKey(secret).toBytes();
}

export function blsSignature(message: Uint8Array, secret: Uint8Array, ciphersuite: string): Uint8Array {
  const hash = bls12_381.G2.hashToCurve(message, { DST: ciphersuite });
  return bls12_381.longSignatures.sign(hash, secret).toBytes();
}

function pairing(bytes: Bytes): Item {
  const secret = blsSecret(bytes);
  const message = bytes.take(32);
  return { publicKey: blsKey(secret), message, signature: blsSignature(message, secret, BLS_POP) };
}

const LATTICES = { "ml-dsa-44": ml_dsa44, "ml-dsa-65": ml_dsa65, "ml-dsa-87": ml_dsa87 } as const;

const lattice =
  (scheme: keyof typeof LATTICES): Signer =>
  (bytes) => {
    const { secretKey, publicKey } = LATTICES[scheme].keygen(bytes.take(32));
    const message = bytes.take(bytes.below(200));
    return { publicKey, message, signature: LATTICES[scheme].sign(message, secretKey) };
  };

function hashes(bytes: Bytes): Item {
  const { secretKey, publicKey } = slh_dsa_sha2_128f.keygen(bytes.take(48));
  const message = bytes.take(50);
  return { publicKey, message, signature: slh_dsa_sha2_128f.sign(message, secretKey) };
}

/** One of each family; how many different items are signed, since some take long. */
export const SIGNERS: readonly (readonly [scheme: Scheme, signer: Signer, distinct: number])[] = [
  ["ed25519", edwards, 40],
  ["secp256k1", ecdsa, 40],
  ["bls12-381", pairing, 24],
  ["ml-dsa-44", lattice("ml-dsa-44"), 10],
  ["ml-dsa-65", lattice("ml-dsa-65"), 10],
  ["ml-dsa-87", lattice("ml-dsa-87"), 10],
  ["slh-dsa-sha2-128f", hashes, 3],
];

export function signer(scheme: Scheme): Signer {
  const found = SIGNERS.find(([name]) => name === scheme);
  if (found === undefined) throw new Error(`no signer for ${scheme}`);
  return found[1];
}

export function items(scheme: Scheme, count: number, distinct = count): Item[] {
  const bytes = new Bytes(scheme);
  const sign = signer(scheme);
  const made = Array.from({ length: Math.min(count, distinct) }, () => sign(bytes));
  return Array.from({ length: count }, (_, at) => made[at % made.length]!);
}

/** `part` with one bit turned over. */
export function flipped(part: Uint8Array, bit: number): Uint8Array {
  const copy = new Uint8Array(part);
  copy[bit >> 3]! ^= 1 << (bit & 7);
  return copy;
}

/** The item with a signature that is as well-formed and of another message. */
export function spoiled(item: Item): Item {
  return { ...item, message: flipped(item.message.length === 0 ? new Uint8Array(1) : item.message, 0) };
}

/** The item with a bit turned over, bytes swapped or a part replaced, or as it was. */
export function mutated(item: Item, bytes: Bytes): Item {
  const name = (["publicKey", "message", "signature"] as const)[bytes.below(3)]!;
  const part = item[name];
  if (part.length === 0) return item;
  switch (bytes.below(4)) {
    case 0:
      return item;
    case 1:
      return { ...item, [name]: flipped(part, bytes.below(part.length * 8)) };
    case 2: {
      const copy = new Uint8Array(part);
      copy.fill([0, 255, 1, 127][bytes.below(4)]!, bytes.below(part.length));
      return { ...item, [name]: copy };
    }
    default:
      return { ...item, [name]: bytes.take(part.length) };
  }
}

/** What one verifier says of `batch`, by name. */
export function reasonsOf(
  verifier: SchemeVerifier,
  batch: readonly Item[] | PackedBatch,
  params: Partial<Params> = {},
): Reason[] {
  const packed = "bytes" in batch ? batch : pack(batch);
  const codes = new Uint8Array(packed.count).fill(99);
  verifier.verify(packed, 0, packed.count, { ...DEFAULT_PARAMS, ...params }, codes);
  return [...codes].map((code) => REASONS[code]!);
}
