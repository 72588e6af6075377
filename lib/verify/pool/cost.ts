/** About what a signature costs, by which batches are cut and small ones kept on the calling thread. Verdicts never depend on it. */
import { availableParallelism } from "node:os";
import {
  BLS_POP,
  DEFAULT_PARAMS,
  TABLE_STRIDE,
  type PackedBatch,
  type Params,
  type Scheme,
} from "../contract.ts";
import { isOutside, type Rows } from "../rows.ts";

export interface Cost {
  /** Processor time of one item with a short message, microseconds. */
  readonly itemMicros: number;
  /** On top, for each byte of key, message and signature, nanoseconds. */
  readonly byteNanos: number;
  /** On top, for each byte of a key beyond the first 48, nanoseconds: for a scheme that has several keys in one item. */
  readonly keyByteNanos?: number;
  /** A batch that takes less than this stays on the calling thread, microseconds. */
  readonly callingMicros: number;
  /** What a worker takes at a time, microseconds: how long one that is told to stop goes on, and how long another batch waits. */
  readonly rangeMicros: number;
  /** At most this many workers at one slice; for a library that has threads of its own. */
  readonly workers?: number;
}

/** What a worker does between two looks at its messages. */
const RANGE_MICROS = 4_000;

const ONE_KEY_BYTES = 48;

/** Hashing a message: SHA-512 and SHAKE256 go at some 300 to 500 MB/s. */
const HASH_NANOS = 3;

/**
 * Measured on one 2-core x86-64 host (`bun run bench:verify`). Handing a batch to a worker that is there costs some 30 us until it is back, and
 * one that must be started some milliseconds more; what stays on the calling thread keeps everything else there waiting.
 */
const COSTS: Readonly<Record<string, Cost>> = {
  ed25519: { itemMicros: 55, byteNanos: HASH_NANOS, callingMicros: 500, rangeMicros: RANGE_MICROS },
  secp256k1: { itemMicros: 55, byteNanos: HASH_NANOS, callingMicros: 500, rangeMicros: RANGE_MICROS },
  "ml-dsa-44": { itemMicros: 38, byteNanos: HASH_NANOS, callingMicros: 500, rangeMicros: RANGE_MICROS },
  "ml-dsa-65": { itemMicros: 54, byteNanos: HASH_NANOS, callingMicros: 500, rangeMicros: RANGE_MICROS },
  "ml-dsa-87": { itemMicros: 84, byteNanos: HASH_NANOS, callingMicros: 500, rangeMicros: RANGE_MICROS },
};

/** Keccak-256 is noble's, in JavaScript. */
const SECP256K1_KECCAK: Cost = { ...COSTS["secp256k1"]!, byteNanos: 28 };

/**
 * BLS by blst. A random linear combination gains with every item, so that a range is longer than it is elsewhere: the 128 items that are tried
 * as one. blst has one thread per core of its own for that, which its callers wait for; in the worker remains decoding and checking the points, a quarter of the
 * work. So a third of the workers keeps the cores busy, and all of them would only be more threads than cores.
 */
const BLST: Cost = {
  itemMicros: 700,
  byteNanos: HASH_NANOS,
  keyByteNanos: 2_000,
  callingMicros: 1_000,
  rangeMicros: 90_000,
  workers: Math.max(2, Math.ceil(availableParallelism() / 3)),
};

/** BLS by noble, where the ciphersuite is not the one that blst has built in. */
const NOBLE_BLS: Cost = {
  itemMicros: 20_000,
  byteNanos: HASH_NANOS,
  keyByteNanos: 18_000,
  callingMicros: 0,
  rangeMicros: 160_000,
};

/** One takes 1 to 5 ms by liboqs and 5 to 40 by noble, more than a stretch may: always for the workers. */
const SLH_DSA: Cost = {
  itemMicros: 5_000,
  byteNanos: HASH_NANOS,
  callingMicros: 0,
  rangeMicros: RANGE_MICROS,
};

/** What an aggregate takes: each key has a message of its own, which is hashed to a point and paired, and nothing is tried as one. */
const BLST_AGGREGATE: Cost = { ...BLST, itemMicros: 1_300, keyByteNanos: 10_000 };
const NOBLE_AGGREGATE: Cost = { ...NOBLE_BLS, keyByteNanos: 200_000 };

/** About what an item of `scheme` costs here. For the same arguments it is the same object. */
export function costOf(scheme: Scheme, { ciphersuite, digest, form }: Params = DEFAULT_PARAMS): Cost {
  if (scheme === "secp256k1" && digest === "keccak-256") return SECP256K1_KECCAK;
  if (scheme !== "bls12-381") return COSTS[scheme] ?? SLH_DSA;
  if (form === "aggregate") return ciphersuite === BLS_POP ? BLST_AGGREGATE : NOBLE_AGGREGATE;
  return ciphersuite === BLS_POP ? BLST : NOBLE_BLS;
}

/** What `item` takes for its bytes, on top of what every item takes, nanoseconds. */
export function bytesNanos(rows: Rows, item: number, { byteNanos, keyByteNanos = 0 }: Cost): number {
  if (isOutside(rows, item)) return 0;
  const { table } = rows;
  const at = item * TABLE_STRIDE;
  const bytes = table[at + 1]! + table[at + 3]! + table[at + 5]!;
  return bytes * byteNanos + Math.max(0, table[at + 1]! - ONE_KEY_BYTES) * keyByteNanos;
}

/** What `item` takes, nanoseconds. */
export function itemNanos(rows: Rows, item: number, cost: Cost): number {
  return cost.itemMicros * 1_000 + bytesNanos(rows, item, cost);
}

/** Microseconds for the whole batch; for one with very many items, what they take with empty messages. */
export function estimateMicros(batch: PackedBatch, cost: Cost): number {
  const items = batch.count * cost.itemMicros;
  if (items >= cost.callingMicros) return items;
  let nanos = 0;
  for (let item = 0; item < batch.count; item++) nanos += bytesNanos(batch, item, cost);
  return items + nanos / 1_000;
}
