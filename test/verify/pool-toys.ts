/** Schemes that cost next to nothing and do as they are told: for tests of the pool and not of signatures. */
import {
  CODE,
  DEFAULT_PARAMS,
  TABLE_STRIDE,
  type PackedBatch,
  type SchemeVerifier,
} from "../../lib/verify/contract.ts";
import type { Cost, PoolJob } from "../../lib/verify/pool/index.ts";

/** A signature is one byte, the sum of the key's and the message's bytes; of any other length it is malformed. */
function sumVerdict({ bytes, table }: PackedBatch, item: number): number {
  const [key, keyLength, message, messageLength, signature, signatureLength] = table.subarray(
    item * TABLE_STRIDE,
    (item + 1) * TABLE_STRIDE,
  ) as unknown as [number, number, number, number, number, number];
  const ends = [key + keyLength, message + messageLength, signature + signatureLength];
  if (Math.max(...ends) > bytes.length) return CODE.item;
  if (signatureLength !== 1) return CODE.signatureLength;
  let sum = 0;
  for (let at = key; at < key + keyLength; at++) sum += bytes[at]!;
  for (let at = message; at < message + messageLength; at++) sum += bytes[at]!;
  return (sum & 255) === bytes[signature] ? CODE.valid : CODE.signature;
}

const sum: SchemeVerifier = {
  verify(batch, from, to, _params, codes) {
    for (let item = from; item < to; item++) codes[item - from] = sumVerdict(batch, item);
  },
};

function spin(millis: number): void {
  const until = performance.now() + millis;
  while (performance.now() < until);
}

/** Calls `fault` for items whose key begins with 255: each time, or only the first time, which is noted in the batch's own (shared) bytes. */
function faulty(fault: () => void, once: boolean): SchemeVerifier {
  return {
    verify(batch, from, to, params, codes) {
      for (let item = from; item < to; item++) {
        const key = batch.table[item * TABLE_STRIDE]!;
        if (batch.bytes[key] === 255) {
          if (once) batch.bytes[key] = 254;
          fault();
        }
      }
      sum.verify(batch, from, to, params, codes);
    },
  };
}

const toys: Readonly<Record<string, () => SchemeVerifier>> = {
  sum: () => sum,
  /** Does nothing at all. */
  lazy: () => ({ verify() {} }),
  /** All is valid where the environment says so. */
  env: () => ({
    verify(_batch, from, to, _params, codes) {
      codes.fill(process.env["ZAP_TEST_TOY"] === "valid" ? CODE.valid : CODE.signature, 0, to - from);
    },
  }),
  /** `context[0]` milliseconds for each item. */
  slow: () => ({
    verify(batch, from, to, params, codes) {
      for (let item = from; item < to; item++) spin(params.context[0]!);
      sum.verify(batch, from, to, params, codes);
    },
  }),
  "exit-once": () => faulty(() => process.exit(7), true),
  exit: () => faulty(() => process.exit(7), false),
  "throw-once": () => faulty(() => void thrown(), true),
  throw: () => faulty(() => void thrown(), false),
  /** An error that nobody catches, outside of the verifier. */
  "stray-once": () =>
    faulty(() => {
      setTimeout(thrown, 0);
      spin(1);
    }, true),
};

function thrown(): never {
  throw new Error("the toy is broken");
}

export function toy(scheme: string): Promise<SchemeVerifier> {
  const make = toys[scheme];
  if (make === undefined) return Promise.reject(new Error(`there is no toy ${scheme}`));
  return Promise.resolve(make());
}

/** Small ranges, so that there are many. */
export const TOY_COST: Cost = { itemMicros: 100, byteNanos: 0, callingMicros: 0, rangeMicros: 1_600 };

export interface ToyBatch {
  readonly batch: PackedBatch;
  readonly expected: Uint8Array;
}

/** `count` items with parts of mixed lengths and gaps; every seventh is wrong, every eleventh malformed, every thirteenth outside. */
export function toyBatch(count: number, { shared = false, extra = 0 } = {}): ToyBatch {
  const stride = 24 + extra;
  const size = count * stride;
  const bytes = new Uint8Array(shared ? new SharedArrayBuffer(size) : new ArrayBuffer(size));
  const table = new Uint32Array(count * TABLE_STRIDE);
  const expected = new Uint8Array(count);
  for (let item = 0; item < count; item++) {
    const at = item * stride;
    const messageLength = 3 + (item % 9) + extra;
    bytes[at] = item & 127;
    bytes[at + 1] = item >> 7;
    for (let i = 0; i < 8; i++) bytes[at + 4 + i] = (item * 31 + i * 7) & 255;
    let total = (item & 127) + (bytes[at + 1]! & 255);
    for (let i = 0; i < messageLength; i++) total += bytes[at + 4 + i]!;
    bytes[at + 20 + extra] = total & 255;
    table.set([at, 2, at + 4, messageLength, at + 20 + extra, 1], item * TABLE_STRIDE);
    expected[item] = CODE.valid;
    if (item % 7 === 6) {
      bytes[at + 20 + extra]! ^= 1;
      expected[item] = CODE.signature;
    }
    if (item % 11 === 10) {
      table[item * TABLE_STRIDE + 5] = 2;
      expected[item] = CODE.signatureLength;
    }
    if (item % 13 === 12) {
      table[item * TABLE_STRIDE + 2] = size - 1;
      table[item * TABLE_STRIDE + 3] = 2;
      expected[item] = CODE.item;
    }
  }
  return { batch: { bytes, table, count }, expected };
}

export function toyJob(scheme: string, batch: PackedBatch, given: Partial<PoolJob> = {}): PoolJob {
  return {
    scheme,
    batch,
    params: DEFAULT_PARAMS,
    codes: new Uint8Array(batch.count).fill(99),
    signal: undefined,
    ...given,
  };
}
