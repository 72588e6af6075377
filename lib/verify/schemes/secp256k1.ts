/**
 * ECDSA over secp256k1 (SEC 1, 4.1.4). Lengths, encodings and ranges are checked here; what is left for a library is one 64-byte signature
 * with r and s in range and low S, one 32-byte digest, and a key with a first byte that is allowed. So libraries cannot differ.
 */
import { createHash } from "node:crypto";
import { keccak_256 } from "@noble/hashes/sha3.js";
import { CODE, type Digest, type Params, type SchemeVerifier } from "../contract.ts";
import { DER_LEAST, DER_MOST, readDer } from "./der.ts";
import { isBelow, verifyEach, type Lengths } from "./items.ts";
import type { Secp256k1Engine } from "./secp256k1-engines.ts";

/** The order of the group, n. */
const ORDER = Uint8Array.fromHex("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141");
/** (n - 1) / 2 + 1: S is low where it is below this. */
const HIGH = Uint8Array.fromHex("7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a1");

const COMPRESSED = 33;
const UNCOMPRESSED = 65;

const HASHES: Readonly<Record<Digest, (message: Uint8Array) => Uint8Array>> = {
  given: (message) => message,
  sha256: (message) => createHash("sha256").update(message).digest(),
  "keccak-256": (message) => keccak_256(message),
};

/** The verifier over `engine`. */
export function secp256k1Over(engine: Secp256k1Engine): SchemeVerifier {
  return {
    library: engine.library,
    verify(batch, from, to, params, codes) {
      const hash = HASHES[params.digest];
      const compact = new Uint8Array(64);
      const signature = new Uint8Array(64);
      verifyEach(batch, from, to, lengths(params), codes, (key, message, given) => {
        if (params.encoding === "compact") signature.set(given);
        else if (readDer(given, compact)) signature.set(compact);
        else return CODE.signatureEncoding;
        if (!isInRange(signature, 0) || !isInRange(signature, 32)) return CODE.signatureEncoding;
        if (!isBelow(signature, 32, HIGH)) {
          if (params.lowS) return CODE.signatureEncoding;
          negateS(signature);
        }
        if (!isFirstByte(key)) return CODE.publicKey;
        return engine.verify(signature, hash(message), key);
      });
    },
  };
}

function lengths({ digest, encoding }: Params): Lengths {
  return {
    publicKey: (length) => length === COMPRESSED || length === UNCOMPRESSED,
    message: digest === "given" ? (length) => length === 32 : null,
    signature:
      encoding === "compact"
        ? (length) => length === 64
        : (length) => length >= DER_LEAST && length <= DER_MOST,
  };
}

/** 2 and 3 for a key in 33 bytes, 4 in 65. The hybrid form, 6 and 7, which some libraries take, is none. */
function isFirstByte(key: Uint8Array): boolean {
  return key.length === UNCOMPRESSED ? key[0] === 4 : key[0] === 2 || key[0] === 3;
}

/** Whether the 32 bytes at `at` are a number from 1 to n - 1. */
function isInRange(bytes: Uint8Array, at: number): boolean {
  if (!isBelow(bytes, at, ORDER)) return false;
  for (let i = at; i < at + 32; i++) if (bytes[i] !== 0) return true;
  return false;
}

/** S becomes n - S, which verifies alike; libraries take low S alone. */
function negateS(signature: Uint8Array): void {
  let borrow = 0;
  for (let i = 31; i >= 0; i--) {
    const difference = (ORDER[i] ?? 0) - (signature[32 + i] ?? 0) - borrow;
    signature[32 + i] = difference & 0xff;
    borrow = difference < 0 ? 1 : 0;
  }
}
