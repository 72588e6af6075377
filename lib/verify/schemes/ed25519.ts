/**
 * Ed25519 (RFC 8032, section 5.1.7, as Go's crypto/ed25519): `node:crypto`, which in Bun is BoringSSL and has the same rules to the bit
 * (`docs/verify.md`; the tests hold it against a plain implementation of them). What is added here is the reason for S out of range.
 */
import { createPublicKey, verify, type KeyObject } from "node:crypto";
import { CODE, type SchemeVerifier } from "../contract.ts";
import { MOST_MESSAGE_BYTES, verifyEach, type Lengths } from "./items.ts";
import { rawKey } from "./raw-key.ts";

const LENGTHS: Lengths = {
  publicKey: (length) => length === 32,
  message: (length) => length <= MOST_MESSAGE_BYTES,
  signature: (length) => length === 64,
};

/** The order of the base point, 2^252 + 27742317777372353535851937790883648493, as 32 bytes, lowest first. */
const ORDER = Uint8Array.fromHex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");

export const ed25519: SchemeVerifier = {
  library: "node:crypto",
  verify(batch, from, to, _params, codes) {
    verifyEach(batch, from, to, LENGTHS, codes, verifyOne);
  },
};

function verifyOne(publicKey: Uint8Array, message: Uint8Array, signature: Uint8Array): number {
  if (!isReduced(signature)) return CODE.signatureEncoding;
  const key: KeyObject = createPublicKey(rawKey("ed25519", publicKey));
  return verify(null, message, key, signature) ? CODE.valid : CODE.signature;
}

/** Whether S, bytes 32 to 63 of the signature, is below the order (RFC 8032, 5.1.7, step 1). */
function isReduced(signature: Uint8Array): boolean {
  for (let i = 31; i >= 0; i--) {
    const difference = (signature[32 + i] ?? 0) - (ORDER[i] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return false;
}
