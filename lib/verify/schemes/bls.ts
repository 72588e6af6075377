/**
 * BLS12-381 signatures with keys in G1 (draft-irtf-cfrg-bls-signature), many at once: points are decoded and checked one by one, then up
 * to `CHUNK` equations become one, with a random factor each; where that one does not hold, halves of it are tried until the bad ones
 * stand alone.
 */
import {
  BLS_AUG,
  BLS_NUL,
  BLS_POP,
  CODE,
  type BlsForm,
  type Params,
  type SchemeVerifier,
} from "../contract.ts";
import type { BlsEngine, BlsSet } from "./bls-engine.ts";
import { blsKeysSetting, rememberingKeys } from "./bls-keys.ts";
import { readMessages } from "./bls-messages.ts";
import { nativeBls } from "./bls-native.ts";
import { nobleBls } from "./bls-noble.ts";
import { locate, newPlace, plainView, type Lengths } from "./items.ts";

const KEY = 48;
const SIGNATURE = 96;
/** How many equations are tried as one. Of more the gain is small, and a bad one costs more to find. */
const CHUNK = 128;
/** So many of a chunk's parts may fail before the rest is verified one by one: bad items cost no more than twice what good ones do. */
const MOST_FAILED_PARTS = 12;

const manyKeys = (length: number): boolean => length > 0 && length % KEY === 0;
const lengthsOf = (publicKey: (length: number) => boolean): Lengths => ({
  publicKey,
  message: null,
  signature: (length) => length === SIGNATURE,
});
const LENGTHS: Readonly<Record<BlsForm, Lengths>> = {
  single: lengthsOf((length) => length === KEY),
  "same-message": lengthsOf(manyKeys),
  // Messages come before signatures in the order of reasons, and have to be read for it: `read` looks at both.
  aggregate: { ...lengthsOf(manyKeys), signature: () => true },
};

/** The verifier, with blst where it loads. */
export async function bls(): Promise<SchemeVerifier> {
  return blsOver(await nativeBls());
}

/**
 * The verifier with `native` for Ethereum's ciphersuite, and with noble for the others, or for all where it is null. `keys`: how many decoded
 * keys it keeps for each of the two. Throws `ConfigError` for a setting that cannot be used.
 */
export function blsOver(native: BlsEngine | null, keys = blsKeysSetting(process.env)): SchemeVerifier {
  const fast = native === null ? null : rememberingKeys(native, keys);
  const { key } = rememberingKeys(nobleBls(BLS_POP), keys);
  const engineFor = (ciphersuite: string): BlsEngine =>
    // A key is the same point in every ciphersuite.
    (ciphersuite === BLS_POP ? fast : null) ?? { ...nobleBls(ciphersuite), key };
  return {
    library: native?.library ?? "@noble/curves",
    verify(batch, from, to, params, codes) {
      const engine = engineFor(params.ciphersuite);
      const bytes = plainView(batch.bytes);
      const place = newPlace();
      for (let start = from; start < to; start += CHUNK) {
        const waiting: Waiting[] = [];
        for (let at = start; at < Math.min(to, start + CHUNK); at++) {
          const verdict =
            locate(batch, at, LENGTHS[params.form], place) ??
            read(
              engine,
              params,
              bytes.subarray(place.key, place.key + place.keyLength),
              bytes.subarray(place.message, place.message + place.messageLength),
              bytes.subarray(place.signature, place.signature + place.signatureLength),
            );
          if (typeof verdict === "number") codes[at - from] = verdict;
          else waiting.push({ set: verdict, at: at - from });
        }
        settle(engine, waiting, codes);
      }
    },
  };
}

interface Waiting {
  readonly set: BlsSet<unknown, unknown>;
  /** Where in `codes` its verdict belongs. */
  readonly at: number;
}

/** The item as an equation that still has to be tried, or its code where that is known already. */
function read(
  engine: BlsEngine,
  { ciphersuite, form }: Params,
  publicKey: Uint8Array,
  message: Uint8Array,
  signatureBytes: Uint8Array,
): BlsSet<unknown, unknown> | number {
  const count = publicKey.length / KEY;
  const messages = form === "aggregate" ? readMessages(message, count) : null;
  if (form === "aggregate" && messages === null) return CODE.messageLength;
  if (signatureBytes.length !== SIGNATURE) return CODE.signatureLength;
  const signature = engine.signature(signatureBytes);
  if (signature === null) return CODE.signatureEncoding;

  const keys: unknown[] = [];
  for (let at = 0; at < publicKey.length; at += KEY) {
    const key = engine.key(publicKey.subarray(at, at + KEY));
    if (key === null) return CODE.publicKey;
    keys.push(key);
  }
  if (messages !== null) {
    if (ciphersuite === BLS_NUL && !areDistinct(messages)) return CODE.signature;
    const signed = messages.map((each, at) => augmented(ciphersuite, publicKey.subarray(at * KEY), each));
    return engine.aggregate(signed, keys, signature) ? CODE.valid : CODE.signature;
  }
  const key = engine.sum(keys);
  if (key === null) return CODE.publicKey;
  // The key is not infinity, so the equation cannot hold.
  if (isInfinity(signatureBytes)) return CODE.signature;
  return { message: augmented(ciphersuite, publicKey, message), key, signature };
}

/** What is hashed: the message, behind its key in the ciphersuite that augments. */
function augmented(ciphersuite: string, publicKey: Uint8Array, message: Uint8Array): Uint8Array {
  return ciphersuite === BLS_AUG ? Buffer.concat([publicKey.subarray(0, KEY), message]) : message;
}

function isInfinity(signature: Uint8Array): boolean {
  return ((signature[0] ?? 0) & 0x40) !== 0;
}

function areDistinct(messages: readonly Uint8Array[]): boolean {
  return new Set(messages.map((message) => Buffer.from(message).toString("latin1"))).size === messages.length;
}

/** Finds the verdicts of equations that are independent of each other. */
function settle(engine: BlsEngine, all: readonly Waiting[], codes: Uint8Array): void {
  let failedParts = 0;

  const verifyAlone = (part: readonly Waiting[]): void => {
    for (const { set, at } of part) {
      const valid = engine.verify(set.message, set.key, set.signature);
      codes[at] = valid ? CODE.valid : CODE.signature;
    }
  };
  /** Whether there was none among them that fails. `isBad`: there is one, as is known already. */
  const verifyPart = (part: readonly Waiting[], isBad: boolean): boolean => {
    if (part.length <= 1 || failedParts >= MOST_FAILED_PARTS) {
      verifyAlone(part);
      return part.every(({ at }) => codes[at] === CODE.valid);
    }
    if (!isBad && engine.verifyAll(part.map(({ set }) => set))) {
      for (const { at } of part) codes[at] = CODE.valid;
      return true;
    }
    failedParts++;
    const middle = part.length >> 1;
    const leftIsGood = verifyPart(part.slice(0, middle), false);
    verifyPart(part.slice(middle), leftIsGood);
    return false;
  };
  verifyPart(all, false);
}
