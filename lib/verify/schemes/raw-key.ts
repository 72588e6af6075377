/** A public key as its bare bytes, in the form that `node:crypto` takes. */
import type { PublicKeyInput } from "node:crypto";

/** What `createPublicKey` is given; the types of Bun's `node:crypto` do not know raw keys yet. */
export function rawKey(type: string, key: Uint8Array): PublicKeyInput {
  return { key, format: "raw-public", asymmetricKeyType: type } as unknown as PublicKeyInput;
}
