import { afterEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { bls12_381 } from "@noble/curves/bls12-381.js";
import { AbortedError, ConfigError } from "../../lib/errors/index.ts";
import { pack, type Item, type Scheme } from "../../lib/index.ts";
import { CpuBackend } from "../../lib/verify/backends/cpu.ts";
import { CODE, DEFAULT_PARAMS, type Job } from "../../lib/verify/contract.ts";
import { items, SIGNERS, spoiled } from "./kit.ts";

const backends: CpuBackend[] = [];

function open(env: Record<string, string> = {}, ...rest: [entry?: { path: string }]): CpuBackend {
  const backend = new CpuBackend({ ZAP_VERIFY_WORKERS: "2", ...env }, ...rest);
  backends.push(backend);
  return backend;
}

afterEach(() => {
  for (const backend of backends.splice(0)) backend.close();
});

const signed = new Map<Scheme, Item[]>();

/** Signing takes much longer than verifying, so the same few are used in every test. */
function some(scheme: Scheme): Item[] {
  let list = signed.get(scheme);
  if (list === undefined) signed.set(scheme, (list = items(scheme, scheme.startsWith("slh") ? 1 : 4)));
  return list;
}

function jobOf(scheme: Scheme, count: number, given: { bad?: number; shared?: boolean } = {}): Job {
  const { bad = -1, shared = false } = given;
  const list = Array.from({ length: count }, (_, at) => {
    const item = some(scheme)[at % some(scheme).length]!;
    return at === bad ? spoiled(item) : item;
  });
  const codes = new Uint8Array(count).fill(99);
  return { scheme, batch: pack(list, { shared }), params: DEFAULT_PARAMS, codes, signal: undefined };
}

function expected(count: number, bad: number): Uint8Array {
  return new Uint8Array(count).map((_, at) => (at === bad ? 0 : 1));
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await Bun.sleep(1);
}

describe("the CPU backend", () => {
  for (const [scheme] of SIGNERS) {
    test(`gives the same verdicts with workers and without: ${scheme}`, async () => {
      const count = scheme.startsWith("slh") ? 4 : 60;
      for (const [workers, shared] of [
        ["0", false],
        ["2", false],
        ["2", true],
      ] as const) {
        const backend = open({ ZAP_VERIFY_WORKERS: workers });
        for (const bad of [-1, 0, count >> 1, count - 1]) {
          const job = jobOf(scheme, count, { bad, shared });
          await backend.run(job);
          expect(job.codes).toEqual(expected(count, bad));
        }
      }
    }, 60_000);
  }

  test("keeps small batches on the calling thread, and gives others to workers", async () => {
    const backend = open();
    for (const count of [0, 1, 5]) await backend.run(jobOf("ed25519", count));
    expect(backend.workers()).toEqual({ most: 2, running: 0 });
    await backend.run(jobOf("ed25519", 200));
    expect(backend.workers()).toEqual({ most: 2, running: 2 });
  });

  test("gives small batches to workers too where there are more of them than the event loop can take", async () => {
    const backend = open();
    const jobs = Array.from({ length: 400 }, () => jobOf("ed25519", 1));
    await Promise.all(jobs.map((job) => backend.run(job)));
    expect(jobs.every(({ codes }) => codes[0] === 1)).toBe(true);
    expect((backend.workers() as { running: number }).running).toBeGreaterThan(0);
  });

  test("does without workers where none starts, and says why", async () => {
    const backend = open({}, { path: join(import.meta.dir, "no-such-worker.ts") });
    const job = jobOf("ed25519", 200, { bad: 7 });
    await backend.run(job);
    expect(job.codes).toEqual(expected(200, 7));
    expect(backend.workers()).toEqual({ none: expect.stringContaining("no worker could be started") });
  });

  test("has none where the setting says so", () => {
    expect(open({ ZAP_VERIFY_WORKERS: "0" }).workers()).toEqual({ none: "ZAP_VERIFY_WORKERS is 0" });
  });

  test("rejects where a setting cannot be used", async () => {
    const error = await open({ ZAP_VERIFY_WORKERS: "all" })
      .run(jobOf("ed25519", 1))
      .catch((error: unknown) => error);
    expect(error).toBeInstanceOf(ConfigError);
  });

  for (const workers of ["0", "2"]) {
    test(`stops where the signal fires, with ${workers} workers`, async () => {
      const backend = open({ ZAP_VERIFY_WORKERS: workers });
      const job = { ...jobOf("ed25519", 4_000), signal: AbortSignal.timeout(10) };
      const error = await backend.run(job).catch((error: unknown) => error);
      expect(error).toBeInstanceOf(AbortedError);
    });
  }

  test("answers a small batch while one of BLS items with many keys is under way", async () => {
    const backend = open({ ZAP_VERIFY_WORKERS: "1" });
    const params = { ...DEFAULT_PARAMS, form: "same-message" as const };
    // Keys that repeat: what counts is how many there are.
    const { publicKey, message } = some("bls12-381")[0]!;
    const keys = new Uint8Array(Buffer.concat(Array.from({ length: 64 }, () => publicKey)));
    const signature = bls12_381.G2.Point.BASE.toBytes(true);
    const many = { publicKey: keys, message, signature };
    const codes = new Uint8Array(128).fill(99);
    const batch = pack(Array.from(codes, () => many));
    let over = false;
    const running = backend.run({ ...jobOf("bls12-381", 0), batch, params, codes }).then(() => (over = true));
    // Behind it in the line, and of the same worker.
    await until(() => (backend.workers() as { running: number }).running > 0);
    const small = jobOf("ed25519", 100, { bad: 3 });
    await backend.run(small);
    expect(over).toBe(false);
    expect(small.codes).toEqual(expected(100, 3));
    await running;
    expect(codes).toEqual(new Uint8Array(128));
  }, 30_000);

  test("says once, by a warning, that there are no workers though nobody asked for that", async () => {
    const warnings: Error[] = [];
    const note = (warning: Error): unknown => warnings.push(warning);
    process.on("warning", note);
    try {
      const backend = new CpuBackend({}, { missing: "no code" });
      await backend.run(jobOf("ed25519", 2));
      await Bun.sleep(5);
      expect(warnings).toEqual([]);
      for (let round = 0; round < 3; round++) await backend.run(jobOf("ed25519", 60));
      await open({ ZAP_VERIFY_WORKERS: "0" }).run(jobOf("ed25519", 60));
      await Bun.sleep(5);
      expect(warnings.map(({ message }) => message)).toEqual([
        "verify: the calling thread verifies everything: no code",
      ]);
    } finally {
      process.off("warning", note);
    }
  });

  test("keeps items outside of their batch on the calling thread, whatever lengths they claim", async () => {
    const backend = open();
    const job = jobOf("ed25519", 1);
    job.batch.table[3] = 0xffff_ffff;
    await backend.run(job);
    expect(job.codes).toEqual(Uint8Array.of(CODE.item));
    expect(backend.workers()).toEqual({ most: 2, running: 0 });
  });

  test("verifies ML-DSA with a context, which comes later, in workers and here", async () => {
    const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(1) };
    for (const workers of ["0", "2"]) {
      const job = { ...jobOf("ml-dsa-44", 40), params };
      await open({ ZAP_VERIFY_WORKERS: workers }).run(job);
      // They were signed without one.
      expect(job.codes).toEqual(new Uint8Array(40));
    }
  });
});
