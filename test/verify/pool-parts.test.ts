import { describe, expect, test } from "bun:test";
import { AbortedError, ConfigError } from "../../lib/errors/index.ts";
import { DEFAULT_PARAMS, SCHEMES } from "../../lib/verify/contract.ts";
import { estimateMicros, rangeItems } from "../../lib/verify/pool/cost.ts";
import { TURN_NANOS } from "../../lib/verify/pool/stretches.ts";
import { CallingThread, costOf, poolSettings, Stretches, workerEntry } from "../../lib/verify/pool/index.ts";
import { toy, toyBatch, toyJob, TOY_COST } from "./pool-toys.ts";

describe("settings", () => {
  test("have defaults", () => {
    const settings = poolSettings({});
    expect(settings.workers).toBeGreaterThan(0);
    expect(settings).toMatchObject({ poolBytes: 32 * 1024 * 1024, idleMillis: 10_000 });
  });

  test("are read, and what cannot be used is an error", () => {
    const env = {
      ZAP_VERIFY_WORKERS: "0",
      ZAP_VERIFY_POOL_BYTES: "8388608",
      ZAP_VERIFY_IDLE_MILLIS: "1",
    };
    expect(poolSettings(env)).toEqual({ workers: 0, poolBytes: 8_388_608, idleMillis: 1 });
    for (const name of Object.keys(env)) {
      expect(() => poolSettings({ [name]: "-1" })).toThrow(ConfigError);
      expect(() => poolSettings({ [name]: "many" })).toThrow(name);
    }
  });
});

describe("stretches", () => {
  test("of one turn of the event loop share its budget", async () => {
    const stretches = new Stretches();
    expect(stretches.enter(TURN_NANOS / 2)).toBeNull();
    expect(stretches.enter(TURN_NANOS / 2)).toBeNull();
    const waited = stretches.enter(1);
    expect(waited).not.toBeNull();
    expect(stretches.waiting).toBe(1);
    await waited;
    expect(stretches.waiting).toBe(0);
  });

  test("count what was really taken", () => {
    const stretches = new Stretches();
    expect(stretches.enter(1_000)).toBeNull();
    stretches.leave(1_000, TURN_NANOS);
    expect(stretches.enter(1_000)).not.toBeNull();
  });

  test("longer than the budget are let in, each in a turn of its own, in order", async () => {
    const stretches = new Stretches();
    const order: number[] = [];
    const turns: number[] = [];
    let turn = 0;
    const counting = setInterval(() => {}, 1);
    const count = (): void => {
      turn += 1;
      if (order.length < 5) setImmediate(count);
    };
    count();
    await Promise.all(
      [0, 1, 2, 3, 4].map(async (which) => {
        await stretches.enter(TURN_NANOS * 3);
        order.push(which);
        turns.push(turn);
      }),
    );
    clearInterval(counting);
    expect(order).toEqual([0, 1, 2, 3, 4]);
    expect(new Set(turns).size).toBe(5);
  });
});

describe("the calling thread", () => {
  test("gives the same verdicts, with turns of the event loop in between", async () => {
    const { batch, expected } = toyBatch(30);
    const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(1) };
    const job = toyJob("slow", batch, { params });
    let turns = 0;
    const counting = setInterval(() => (turns += 1), 0);
    await new CallingThread(new Stretches()).run(job, await toy("slow"), { ...TOY_COST, itemMicros: 1_000 });
    clearInterval(counting);
    expect(job.codes).toEqual(expected);
    expect(turns).toBeGreaterThan(2);
  });

  test("stops where the signal fires", async () => {
    const controller = new AbortController();
    const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(1) };
    const job = toyJob("slow", toyBatch(1_000).batch, { params, signal: controller.signal });
    setTimeout(() => controller.abort(), 5);
    const run = new CallingThread(new Stretches()).run(job, await toy("slow"), TOY_COST);
    expect(await run.catch((error: unknown) => error)).toBeInstanceOf(AbortedError);
  });

  test("waits for what a library gives later", async () => {
    const { batch, expected } = toyBatch(50);
    const sum = await toy("sum");
    const job = toyJob("sum", batch);
    const later = {
      ...sum,
      async later(...args: Parameters<typeof sum.verify>) {
        await Bun.sleep(1);
        sum.verify(...args);
      },
    };
    await new CallingThread(new Stretches()).run(job, later, TOY_COST);
    expect(job.codes).toEqual(expected);
  });
});

describe("costs", () => {
  test("are known for every scheme, and cut ranges that are never empty", () => {
    for (const scheme of SCHEMES) {
      const cost = costOf(scheme);
      expect(cost.itemMicros).toBeGreaterThan(0);
      for (const items of [1, 2, 1_000, 16_384]) {
        for (const bytes of [0, items * 200, items * 100_000_000]) {
          const range = rangeItems(cost, items, bytes, 4);
          expect(range).toBeGreaterThanOrEqual(1);
          expect(range).toBeLessThanOrEqual(Math.max(1, Math.ceil(items / 4)));
        }
      }
    }
  });

  test("grow with the message, so that one that takes long to hash goes to a worker", () => {
    const cost = costOf("ed25519");
    const batch = (length: number) => ({
      bytes: new Uint8Array(0),
      table: Uint32Array.of(0, 32, 0, length, 0, 64),
      count: 1,
    });
    expect(estimateMicros(batch(100), cost)).toBeLessThan(cost.callingMicros);
    expect(estimateMicros(batch(100_000_000), cost)).toBeGreaterThan(100_000);
  });
});

test("the worker's code is found from source, and elsewhere only under its own name", () => {
  expect(workerEntry()).toEqual({ path: expect.stringMatching(/lib.verify.pool.worker\.ts$/) });
  expect(workerEntry("/no/such/folder/bundle.js")).toEqual({ missing: expect.stringContaining("worker.ts") });
  expect(workerEntry("/$bunfs/root/program")).toEqual({ missing: expect.stringContaining("worker.ts") });
});
