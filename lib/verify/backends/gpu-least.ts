/** From how many items on a batch is faster on a device than on the CPU: both are timed, once the device's kernel is there. */
import { ZapError } from "../../errors/index.ts";
import { CODE, DEFAULT_PARAMS, TABLE_STRIDE, type PackedBatch } from "../contract.ts";
import { ed25519 } from "../schemes/ed25519.ts";

/** Items of the two launches that are timed: few for any GPU, and as many as keep a small one busy. */
export const SAMPLES = [512, 8_192] as const;
/** Below this the CPU is done before a launch has been looked at. */
const FLOOR = 64;
const CPU_ITEMS = 16;

/** RFC 8032, section 7.1, test 1: a key, and its signature of the empty message. */
const KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const SIGNATURE =
  "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";

/** `count` times the same valid item. Whoever does not call all of them valid must verify nothing. */
export function sample(count: number): PackedBatch {
  const bytes = Uint8Array.fromHex(KEY + SIGNATURE);
  const table = new Uint32Array(count * TABLE_STRIDE);
  for (let at = 0; at < table.length; at += TABLE_STRIDE) table.set([0, 32, 0, 0, 32, 64], at);
  return { bytes, table, count };
}

/** Throws where `codes`, a device's answer to a sample, are not what they must be. */
export function checkSample(codes: Uint8Array, device: string): void {
  if (codes.every((code) => code === CODE.valid)) return;
  throw new ZapError("ERR_ZAP_VERIFY", `${device} refuses a valid signature (RFC 8032, test 1)`);
}

/** Microseconds that the CPU takes for an item, with `workers` of them at work. */
export function cpuMicros(workers: number): number {
  const batch = sample(CPU_ITEMS);
  const codes = new Uint8Array(CPU_ITEMS);
  let best = Infinity;
  for (let round = 0; round < 3; round++) {
    const start = Bun.nanoseconds();
    ed25519.verify(batch, 0, CPU_ITEMS, DEFAULT_PARAMS, codes);
    best = Math.min(best, Bun.nanoseconds() - start);
  }
  return best / 1_000 / CPU_ITEMS / Math.max(1, workers);
}

/**
 * The least number of items for which a device is faster, which took `few` and `many` microseconds for the two samples, where the CPU takes `cpu`
 * for an item: with the device's time as a line through the two. Infinity where it never is.
 */
export function leastItems(few: number, many: number, cpu: number): number {
  const each = Math.max(0, (many - few) / (SAMPLES[1] - SAMPLES[0]));
  const once = Math.max(0, few - each * SAMPLES[0]);
  return cpu <= each ? Infinity : Math.max(FLOOR, Math.ceil(once / (cpu - each)));
}
