/** Signatures of the same message: they share its hash and its pairing, which is most of the work. */
import type { BlsSet } from "./bls-engine.ts";

/** The sets by message, in no particular order. */
export function byMessage<Key, Signature>(
  sets: readonly BlsSet<Key, Signature>[],
): BlsSet<Key, Signature>[][] {
  const groups: BlsSet<Key, Signature>[][] = [];
  const found = new Map<number | bigint, BlsSet<Key, Signature>[]>();
  for (const set of sets) {
    const hash = Bun.hash(set.message);
    const group = found.get(hash);
    // The hash can be made to collide: the bytes decide.
    if (group?.[0] !== undefined && Buffer.compare(group[0].message, set.message) === 0) {
      group.push(set);
      continue;
    }
    const fresh = [set];
    groups.push(fresh);
    if (group === undefined) found.set(hash, fresh);
  }
  return groups;
}
