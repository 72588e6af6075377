/**
 * Public keys that were decoded lately. Decoding one, with the check of its subgroup, is a tenth of verifying a signature, and nearly all of it
 * where one signature has hundreds of keys; validators sign with the same keys block after block.
 */
import { readDecimal, type Env } from "../../settings/index.ts";
import type { BlsEngine } from "./bls-engine.ts";

/** `ZAP_VERIFY_BLS_KEYS`: how many decoded keys each thread keeps, 0 to 1,048,576; default 8,192, at some 400 bytes each. */
export function blsKeysSetting(env: Env): number {
  return readDecimal(env, "ZAP_VERIFY_BLS_KEYS", { byDefault: 8_192, least: 0, most: 1_048_576 });
}

/** `engine`, with at most `most` of the keys that it decoded kept. Bytes that are no key are looked at each time. */
export function rememberingKeys<Key, Signature>(
  engine: BlsEngine<Key, Signature>,
  most: number,
): BlsEngine<Key, Signature> {
  if (most === 0) return engine;
  const half = Math.max(1, most >> 1);
  // Two generations instead of an order: a key that is asked for moves to the younger, and the older goes as a whole.
  let younger = new Map<string, Key>();
  let older = new Map<string, Key>();
  return {
    ...engine,
    key(bytes) {
      // A copy of its own: what other threads do to shared memory meanwhile must not put a key under the name of another.
      const own = Buffer.from(bytes);
      const name = own.toString("latin1");
      const young = younger.get(name);
      if (young !== undefined) return young;
      const key = older.get(name) ?? engine.key(own);
      if (key === null) return null;
      if (younger.size >= half) [older, younger] = [most === 1 ? new Map() : younger, new Map()];
      younger.set(name, key);
      return key;
    },
  };
}
