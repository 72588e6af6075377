/** BLS12-381 by @noble/curves: every ciphersuite, every platform, some twenty times slower than a native library. */
import { bls12_381 } from "@noble/curves/bls12-381.js";
import type { BlsEngine } from "./bls-engine.ts";
import { byMessage } from "./bls-groups.ts";

const { G1, G2, fields } = bls12_381;

type G1Point = typeof G1.Point.BASE;
type G2Point = typeof G2.Point.BASE;
interface Pair {
  g1: G1Point;
  g2: G2Point;
}

const INFINITY_BYTE = 0xc0;

export function nobleBls(ciphersuite: string): BlsEngine<G1Point, G2Point> {
  const hash = (message: Uint8Array): G2Point => G2.hashToCurve(message, { DST: ciphersuite });
  return {
    library: "@noble/curves",
    key(bytes) {
      try {
        // Throws for what is not on the curve or not in the subgroup.
        const point = G1.Point.fromBytes(bytes);
        return point.is0() ? null : point;
      } catch {
        return null;
      }
    },
    signature(bytes) {
      if (bytes[0] === INFINITY_BYTE && bytes.every((byte, at) => at === 0 || byte === 0))
        return G2.Point.ZERO;
      try {
        const point = G2.Point.fromBytes(bytes);
        return point.is0() ? null : point;
      } catch {
        return null;
      }
    },
    sum(keys) {
      const sum = keys.reduce((left, right) => left.add(right));
      return sum.is0() ? null : sum;
    },
    verify: (message, key, signature) => isOne([{ g1: key, g2: hash(message) }], signature),
    verifyAll(sets) {
      let sum = G2.Point.ZERO;
      const pairs: Pair[] = [];
      for (const group of byMessage(sets)) {
        let keys = G1.Point.ZERO;
        for (const { key, signature } of group) {
          const factor = randomFactor();
          keys = keys.add(key.multiplyUnsafe(factor));
          sum = sum.add(signature.multiplyUnsafe(factor));
        }
        // Keys that cancel out contribute one to the product.
        const [{ message }] = group as [(typeof group)[0]];
        if (!keys.is0()) pairs.push({ g1: keys, g2: hash(message) });
      }
      return isOne(pairs, sum);
    },
    aggregate: (messages, keys, signature) =>
      isOne(
        keys.map((key, at) => ({ g1: key, g2: hash(messages[at] ?? new Uint8Array(0)) })),
        signature,
      ),
  };
}

/** Whether the product of the pairings of `pairs`, divided by that of the base point and `signature`, is one. */
function isOne(pairs: Pair[], signature: G2Point): boolean {
  const all = signature.is0() ? pairs : [...pairs, { g1: G1.Point.BASE.negate(), g2: signature }];
  return fields.Fp12.eql(bls12_381.pairingBatch(all), fields.Fp12.ONE);
}

/** A random number of 64 bits, never 0. */
function randomFactor(): bigint {
  const [number] = crypto.getRandomValues(new BigUint64Array(1));
  return number === undefined || number === 0n ? randomFactor() : number;
}
