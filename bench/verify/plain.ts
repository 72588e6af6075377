/** The yardstick: what a program would write without this library, a loop over the plain call of the library that verifies here too. */
import { createPublicKey, verify } from "node:crypto";
import { slh_dsa_sha2_128f } from "@noble/post-quantum/slh-dsa.js";
import * as blst from "@chainsafe/blst";
import type { Item, Scheme } from "../../lib/index.ts";
import { nativeSecp256k1, nobleSecp256k1 } from "../../lib/verify/schemes/secp256k1-engines.ts";
import { wasmCheck } from "../../lib/verify/schemes/slh-dsa.ts";

/** Verifies one item whose parts are well-formed. */
export type Plain = (item: Item) => boolean;

/** The plain call for `scheme`, from the bytes of the key, as they come from the wire. */
export async function plainCall(scheme: Scheme): Promise<Plain> {
  switch (scheme) {
    case "secp256k1": {
      const engine = nativeSecp256k1() ?? nobleSecp256k1;
      return ({ publicKey, message, signature }) => engine.verify(signature, message, publicKey) === 1;
    }
    case "bls12-381":
      return ({ publicKey, message, signature }) => {
        const key = blst.PublicKey.fromBytes(publicKey, true);
        return blst.verify(message, key, blst.Signature.fromBytes(signature, true), false, false);
      };
    case "slh-dsa-sha2-128f": {
      const check = (await wasmCheck(scheme)) ?? slh_dsa_sha2_128f.verify;
      return ({ publicKey, message, signature }) => check(signature, message, publicKey);
    }
    default:
      return ({ publicKey, message, signature }) => {
        const key = createPublicKey({
          key: publicKey,
          format: "raw-public",
          asymmetricKeyType: scheme,
        } as unknown as Parameters<typeof createPublicKey>[0]);
        return verify(null, message, key, signature);
      };
  }
}
