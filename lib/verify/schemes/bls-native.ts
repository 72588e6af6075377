/** BLS12-381 by @chainsafe/blst: supranational's blst as a native addon, for Ethereum's ciphersuite alone, which it has built in. */
import type { PublicKey, Signature, SignatureSet } from "@chainsafe/blst";
import type { BlsEngine, BlsSet } from "./bls-engine.ts";
import { byMessage } from "./bls-groups.ts";

/** Null where the package has no addon for this platform. */
export async function nativeBls(): Promise<BlsEngine<PublicKey, Signature> | null> {
  let blst;
  try {
    blst = await import("@chainsafe/blst");
  } catch {
    return null;
  }
  /** Signatures of one message become one, each multiplied by its own random number, as is its key. */
  const merge = (group: readonly BlsSet<PublicKey, Signature>[]): SignatureSet => {
    const [{ message, key, signature }] = group as [BlsSet<PublicKey, Signature>];
    if (group.length === 1) return { msg: message, pk: key, sig: signature };
    const sum = blst.aggregateWithRandomness(
      group.map((set) => ({ pk: set.key, sig: set.signature.toBytes() })),
    );
    return { msg: message, ...sum };
  };
  return {
    library: "blst (native)",
    key: (bytes) => decoded(() => blst.PublicKey.fromBytes(bytes, true)),
    signature: (bytes) => decoded(() => blst.Signature.fromBytes(bytes, true, false)),
    sum(keys) {
      const [first] = keys;
      if (keys.length === 1 && first !== undefined) return first;
      const sum = blst.aggregatePublicKeys([...keys], false);
      return isInfinity(sum.toBytes()) ? null : sum;
    },
    verify: (message, key, signature) => blst.verify(message, key, signature, false, false),
    verifyAll(sets) {
      const merged = byMessage(sets).map(merge);
      const [only] = merged;
      if (merged.length === 1 && only !== undefined)
        return blst.verify(only.msg, only.pk, only.sig, false, false);
      return blst.verifyMultipleAggregateSignatures(merged, false, false);
    },
    aggregate: (messages, keys, signature) =>
      blst.aggregateVerify([...messages], [...keys], signature, false, false),
  };
}

/** A compressed point's second highest bit says infinity. */
function isInfinity(bytes: Uint8Array): boolean {
  return ((bytes[0] ?? 0) & 0x40) !== 0;
}

/** blst's own codes for bytes that are no point; any other error is none of the item's. */
const NO_POINT = new Set([
  "BLST_BAD_ENCODING",
  "BLST_POINT_NOT_ON_CURVE",
  "BLST_POINT_NOT_IN_GROUP",
  "BLST_PK_IS_INFINITY",
]);

function decoded<Point>(decode: () => Point): Point | null {
  try {
    return decode();
  } catch (error) {
    if (error instanceof Error && "code" in error && NO_POINT.has(String(error.code))) return null;
    throw error;
  }
}
