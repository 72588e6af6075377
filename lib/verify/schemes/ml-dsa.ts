/**
 * ML-DSA (FIPS 204, algorithm 3: pure, with a context). Without a context `node:crypto` verifies. It takes no context; Bun's WebCrypto
 * does, and answers with a promise (`later`); where the caller cannot wait it is @noble/post-quantum, some thirty times slower.
 */
import { createPublicKey, verify, webcrypto } from "node:crypto";
import { ml_dsa44, ml_dsa65, ml_dsa87 } from "@noble/post-quantum/ml-dsa.js";
import { CODE, type MlDsaScheme, type PackedBatch, type SchemeVerifier } from "../contract.ts";
import { MOST_MESSAGE_BYTES, locate, newPlace, plainView, verifyEach, type Lengths } from "./items.ts";
import { rawKey } from "./raw-key.ts";

/** Sizes in bytes: FIPS 204, table 2. */
const SETS = {
  "ml-dsa-44": { key: 1312, signature: 2420, webName: "ML-DSA-44", noble: ml_dsa44 },
  "ml-dsa-65": { key: 1952, signature: 3309, webName: "ML-DSA-65", noble: ml_dsa65 },
  "ml-dsa-87": { key: 2592, signature: 4627, webName: "ML-DSA-87", noble: ml_dsa87 },
} as const;

/** How many promises of WebCrypto may be under way at once. */
const AT_ONCE = 32;

export function mlDsa(scheme: MlDsaScheme): SchemeVerifier {
  const set = SETS[scheme];
  const lengths: Lengths = {
    publicKey: (length) => length === set.key,
    message: (length) => length <= MOST_MESSAGE_BYTES,
    signature: (length) => length === set.signature,
  };
  return {
    library: "node:crypto",
    verify(batch, from, to, { context }, codes) {
      if (context.length === 0) {
        verifyEach(batch, from, to, lengths, codes, (key, message, signature) =>
          codeOf(verify(null, message, createPublicKey(rawKey(scheme, key)), signature)),
        );
      } else {
        verifyEach(batch, from, to, lengths, codes, (key, message, signature) =>
          codeOf(set.noble.verify(signature, message, key, { context })),
        );
      }
    },
    later(batch, from, to, { context }, codes) {
      if (context.length === 0) return null;
      return withContext(set.webName, context, lengths, batch, from, to, codes);
    },
  };
}

function codeOf(valid: boolean): number {
  return valid ? CODE.valid : CODE.signature;
}

async function withContext(
  name: string,
  context: Uint8Array,
  lengths: Lengths,
  batch: PackedBatch,
  from: number,
  to: number,
  codes: Uint8Array,
): Promise<void> {
  const bytes = plainView(batch.bytes);
  const place = newPlace();
  for (let start = from; start < to; start += AT_ONCE) {
    const under: Promise<void>[] = [];
    for (let at = start; at < Math.min(to, start + AT_ONCE); at++) {
      const fault = locate(batch, at, lengths, place);
      if (fault !== null) {
        codes[at - from] = fault;
        continue;
      }
      // WebCrypto takes no shared memory, so each part is copied.
      const key = bytes.slice(place.key, place.key + place.keyLength);
      const message = bytes.slice(place.message, place.message + place.messageLength);
      const signature = bytes.slice(place.signature, place.signature + place.signatureLength);
      under.push(
        verifyWeb(name, context, key, message, signature).then((valid) => {
          codes[at - from] = codeOf(valid);
        }),
      );
    }
    await Promise.all(under);
  }
}

async function verifyWeb(
  name: string,
  context: Uint8Array,
  key: Uint8Array,
  message: Uint8Array,
  signature: Uint8Array,
): Promise<boolean> {
  const { subtle } = webcrypto;
  const imported = await subtle.importKey(
    "raw-public" as "raw",
    key as Uint8Array<ArrayBuffer>,
    name,
    false,
    ["verify"],
  );
  const algorithm = { name, context: context.slice() };
  return subtle.verify(
    algorithm,
    imported,
    signature as Uint8Array<ArrayBuffer>,
    message as Uint8Array<ArrayBuffer>,
  );
}
