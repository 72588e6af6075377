/** Settings of property tests: the same cases in every run, others with `ZAP_TEST_SEED=n`. */
import fc from "fast-check";

const seed = Number(process.env["ZAP_TEST_SEED"] ?? "1");

/** `fc.assert`'s parameters for `numRuns` cases. */
export function runs(numRuns: number): fc.Parameters<unknown> {
  return { seed, numRuns };
}

/** After this many chunks the rest is cut coarsely: a stream of megabytes, byte by byte, takes too long. */
const FINE_CHUNKS_MAX = 20_000;

/** Cuts `bytes` into chunks of the given sizes, used over and over. Each chunk is memory of its own. */
export function chunksOf(bytes: Uint8Array, sizes: readonly number[]): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = Math.max(i < FINE_CHUNKS_MAX ? 1 : 10_007, sizes[i % sizes.length] ?? bytes.length);
    chunks.push(bytes.slice(at, at + size));
    at += size;
  }
  return chunks;
}

/** A repeatable source of numbers from 0 to 1. */
export function diceOf(from: number): () => number {
  let state = (Math.imul(from, 2_654_435_761) ^ Math.imul(seed, 40_503)) >>> 0 || 1;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return (state >>> 8) / 2 ** 24;
  };
}
