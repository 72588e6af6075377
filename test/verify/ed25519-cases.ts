/** Ed25519 items to verify: what every backend has to agree on. The same ones each time. */
import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { CODE, DEFAULT_PARAMS, type Item, type PackedBatch } from "../../lib/verify/contract.ts";
import { ed25519 } from "../../lib/verify/schemes/ed25519.ts";
import {
  BASE,
  L,
  NEUTRAL,
  P,
  add,
  toLittle,
  encode,
  fromLittle,
  smallOrderGenerator,
  signRaw,
  smallOrderEncodings,
  multiply,
} from "./ed25519-rules.ts";

/** Marsaglia's xorshift: numbers below `bound`. */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 1;
  }

  roll(bound: number): number {
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    return (this.#state >>> 0) % bound;
  }

  bytes(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => this.roll(256));
  }
}

const PKCS8 = Uint8Array.fromHex("302e020100300506032b657004220420");

export class Signer {
  readonly publicKey: Uint8Array;
  readonly #key;

  constructor(seed: Uint8Array) {
    this.#key = createPrivateKey({ key: Buffer.concat([PKCS8, seed]), format: "der", type: "pkcs8" });
    const { x } = createPublicKey(this.#key).export({ format: "jwk" });
    this.publicKey = new Uint8Array(Buffer.from(x!, "base64url"));
  }

  item(message: Uint8Array): Item {
    return { publicKey: this.publicKey, message, signature: new Uint8Array(sign(null, message, this.#key)) };
  }
}

/** Random items, of which some are spoilt: a bit, a part, a length. */
export function randomItems(count: number, seed: number, longest = 300): Item[] {
  const dice = new Dice(seed);
  const signers = Array.from({ length: 16 }, () => new Signer(dice.bytes(32)));
  return Array.from({ length: count }, () => {
    const item = signers[dice.roll(16)]!.item(dice.bytes(dice.roll(longest)));
    return spoilt(item, dice.roll(12), dice);
  });
}

function spoilt({ publicKey, message, signature }: Item, how: number, dice: Dice): Item {
  const flip = (bytes: Uint8Array) => {
    const copy = new Uint8Array(bytes);
    if (copy.length > 0) copy[dice.roll(copy.length)]! ^= 1 << dice.roll(8);
    return copy;
  };
  switch (how) {
    case 0:
      return { publicKey: flip(publicKey), message, signature };
    case 1:
      return { publicKey, message: flip(message), signature };
    case 2:
      return { publicKey, message, signature: flip(signature) };
    case 3:
      return { publicKey: dice.bytes(32), message, signature };
    case 4:
      return { publicKey, message, signature: dice.bytes(64) };
    case 5: {
      // S + L: the same signature, and not the one encoding.
      const s = fromLittle(signature.subarray(32)) + L;
      return {
        publicKey,
        message,
        signature: new Uint8Array([...signature.subarray(0, 32), ...toLittle(s)]),
      };
    }
    case 6:
      return dice.roll(2) === 0
        ? {
            publicKey: publicKey.subarray(dice.roll(32)),
            message,
            signature: signature.subarray(dice.roll(2)),
          }
        : { publicKey, message, signature: signature.subarray(0, dice.roll(64)) };
    default:
      return { publicKey, message, signature };
  }
}

/** The corners: points of small and mixed order, encodings that are not the proper ones, S at its bounds. */
export function cornerItems(): Item[] {
  const dice = new Dice(77);
  const items: Item[] = [];
  const zero = new Uint8Array(32);
  const small = smallOrderEncodings();
  // With S = 0 the equation is R = -[k]A, in a group of eight.
  for (const publicKey of small) {
    for (const r of small) {
      for (let at = 0; at < 6; at++)
        items.push({ publicKey, message: dice.bytes(at), signature: new Uint8Array([...r, ...zero]) });
    }
  }
  // Every y of p or more, with both signs, as a key and as R.
  const seed = dice.bytes(32);
  const signer = new Signer(seed);
  const good = signer.item(dice.bytes(40));
  for (let above = 0n; above < 19n; above++) {
    for (const sign of [0n, 1n]) {
      const odd = toLittle((P + above) | (sign << 255n));
      items.push({ ...good, publicKey: odd });
      items.push({ ...good, signature: new Uint8Array([...odd, ...good.signature.subarray(32)]) });
      // A signature that would hold if only the key's y were what counts.
      const r = encode(multiply(5n, BASE));
      items.push({ publicKey: odd, message: zero, signature: new Uint8Array([...r, ...toLittle(5n)]) });
    }
  }
  // S around its bounds.
  const s = fromLittle(good.signature.subarray(32));
  for (const value of [
    0n,
    1n,
    L - 1n,
    L,
    L + 1n,
    s,
    s + L,
    2n ** 252n,
    2n ** 253n - 1n,
    2n ** 255n,
    2n ** 256n - 1n,
  ])
    items.push({
      ...good,
      signature: new Uint8Array([...good.signature.subarray(0, 32), ...toLittle(value)]),
    });
  // [s]B alone: the neutral key, whose every signature by R = [s]B holds.
  for (const value of [0n, 1n, 2n, L - 1n, 2n ** 200n])
    for (const publicKey of small.slice(0, 4))
      items.push({
        publicKey,
        message: dice.bytes(3),
        signature: new Uint8Array([...encode(multiply(value, BASE)), ...toLittle(value)]),
      });
  // Keys and R with a part of small order: whether it holds without the cofactor depends on the message.
  const eighth = smallOrderGenerator();
  for (let at = 0; at < 48; at++) {
    const a = fromLittle(dice.bytes(31));
    const keyPart = multiply(BigInt(at % 8), eighth);
    const publicKey = encode(add(multiply(a, BASE), keyPart));
    const message = dice.bytes(8);
    const rPart = at % 3 === 0 ? NEUTRAL : multiply(BigInt(dice.roll(8)), eighth);
    items.push({
      publicKey,
      message,
      signature: signRaw(a, publicKey, message, fromLittle(dice.bytes(31)), rPart),
    });
  }
  return items;
}

/** Messages at every length around the blocks of SHA-512, and some long ones. */
export function lengthItems(): Item[] {
  const dice = new Dice(99);
  const signer = new Signer(dice.bytes(32));
  const lengths = [...Array.from({ length: 400 }, (_, at) => at), 1_000, 4_095, 65_536, 300_001];
  return lengths.map((length) => signer.item(dice.bytes(length)));
}

/** Copies of the parts, one after another, at any alignment. */
export function packed(items: readonly Item[]): PackedBatch {
  const parts = items.flatMap(({ publicKey, message, signature }) => [publicKey, message, signature]);
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  const table = new Uint32Array(items.length * 6);
  let used = 0;
  parts.forEach((part, at) => {
    bytes.set(part, used);
    table.set([used, part.length], 2 * at);
    used += part.length;
  });
  return { bytes, table, count: items.length };
}

/** The codes by `node:crypto`. */
export function nodeCodes(batch: PackedBatch): Uint8Array {
  const codes = new Uint8Array(batch.count);
  ed25519.verify(batch, 0, batch.count, DEFAULT_PARAMS, codes);
  return codes;
}

/** Where two rows of codes differ, in words. */
export function differences(seen: Uint8Array, wanted: Uint8Array): string[] {
  const found: string[] = [];
  wanted.forEach((code, at) => {
    if (seen[at] !== code) found.push(`item ${at}: ${seen[at]}, not ${code}`);
  });
  return found.slice(0, 10);
}

export const VALID: number = CODE.valid;
