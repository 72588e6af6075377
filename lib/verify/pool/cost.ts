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

/** About what an item of `scheme` costs here. */
export function costOf(scheme: Scheme, { ciphersuite }: Params = DEFAULT_PARAMS): Cost {
  if (scheme === "bls12-381") return ciphersuite === BLS_POP ? BLST : NOBLE_BLS;
  return COSTS[scheme] ?? SLH_DSA;
}

/** Microseconds for the whole batch; for one with very many items, what they take with empty messages. */
export function estimateMicros({ table, count }: PackedBatch, cost: Cost): number {
  const items = count * cost.itemMicros;
  if (items >= cost.callingMicros) return items;
  const { byteNanos, keyByteNanos = 0 } = cost;
  let nanos = 0;
  for (let at = 0; at < count * TABLE_STRIDE; at += TABLE_STRIDE) {
    nanos += (table[at + 1]! + table[at + 3]! + table[at + 5]!) * byteNanos;
    nanos += Math.max(0, table[at + 1]! - ONE_KEY_BYTES) * keyByteNanos;
  }
  return items + nanos / 1_000;
}

/** How many items make a range, where `items` of them have `bytes` bytes and `workers` share them. */
export function rangeItems(
  cost: Cost,
  items: number,
  bytes: number,
  workers: number,
  keyBytes = 0,
): number {
  const { byteNanos, keyByteNanos = 0 } = cost;
  const keys = Math.max(0, keyBytes / items - ONE_KEY_BYTES) * keyByteNanos;
  const micros = cost.itemMicros + ((bytes / items) * byteNanos + keys) / 1_000;
  const fair = Math.ceil(items / workers);
  return Math.max(1, Math.min(fair, Math.floor(cost.rangeMicros / micros)));
}
