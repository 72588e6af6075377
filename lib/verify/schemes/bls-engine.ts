/** What `bls.ts` asks of a library: points that are decoded and checked once, and the equations over them. */

/** A signature of one message under one key, each checked; never a signature at infinity. */
export interface BlsSet<Key, Signature> {
  readonly message: Uint8Array;
  readonly key: Key;
  readonly signature: Signature;
}

export interface BlsEngine<Key = unknown, Signature = unknown> {
  readonly library: string;
  /** The key in 48 bytes; null where they are no point of the subgroup, or infinity. */
  key(bytes: Uint8Array): Key | null;
  /** The signature in 96 bytes; null where they are no point of the subgroup. Infinity is one. */
  signature(bytes: Uint8Array): Signature | null;
  /** The sum of one or more keys; null where it is infinity. */
  sum(keys: readonly Key[]): Key | null;
  verify(message: Uint8Array, key: Key, signature: Signature): boolean;
  /**
   * Whether all of them verify, by a random linear combination: each set is multiplied by its own random number of at least 64 bits. True
   * for a set that does not verify happens with a probability of at most 2^-63.
   */
  verifyAll(sets: readonly BlsSet<Key, Signature>[]): boolean;
  /** Whether the one `signature`, which may be infinity, is the sum of signatures of `messages[i]` under `keys[i]`. */
  aggregate(messages: readonly Uint8Array[], keys: readonly Key[], signature: Signature): boolean;
}
