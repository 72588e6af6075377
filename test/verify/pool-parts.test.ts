import { describe, expect, test } from "bun:test";
import { AbortedError, ConfigError } from "../../lib/errors/index.ts";
import { DEFAULT_PARAMS, SCHEMES, TABLE_STRIDE, type Params } from "../../lib/verify/contract.ts";
import { estimateMicros, itemNanos } from "../../lib/verify/pool/cost.ts";
import { rangeStarts } from "../../lib/verify/pool/ranges.ts";
import { Slots } from "../../lib/verify/pool/slots.ts";
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

describe("slots", () => {
  const room = 1024 * 1024;

  test("wait in line, and are used again unless they were lost", async () => {
    const slots = new Slots(8 * room);
    const taken = await Promise.all(Array.from({ length: 8 }, () => slots.take()));
    expect(slots.out).toBe(8);
    const waiting = [slots.take(), slots.take()];
    slots.give(taken[0]!, false);
    slots.give(taken[1]!, true);
    expect(await waiting[0]).toBe(taken[0]!);
    expect(taken).not.toContain((await waiting[1])!);
    expect(slots.out).toBe(8);
  });

  test("keep the memory for a large item while one comes after the other, and no longer", async () => {
    const slots = new Slots(8 * room);
    const [slot, other] = [await slots.take(), await slots.take()];
    const large = slots.room(slot, 3 * room);
    slots.give(slot, false);
    expect(await slots.take()).toBe(slot);
    const next = slots.room(slot, 2 * room);
    expect(next.buffer).toBe(large.buffer);
    expect(next.length).toBe(2 * room);
    expect(slots.room(slot, 10).buffer.byteLength).toBe(room);
    expect(slot.large).toBeNull();
    slots.room(other, 2 * room);
    slots.give(other, false);
    slots.give(slot, false);
    expect(other.large).toBeNull();
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

/** Items whose parts all begin at 0 of some bytes: keys, messages and signatures of these lengths. */
function rowsOf(parts: readonly (readonly [key: number, message: number, signature: number])[]) {
  const table = new Uint32Array(parts.length * TABLE_STRIDE);
  for (const [item, [key, message, signature]] of parts.entries())
    table.set([0, key, 0, message, 0, signature], item * TABLE_STRIDE);
  const size = Math.max(0, ...parts.flat());
  return { bytes: new Uint8Array(size), table, count: parts.length };
}

/** What the verifier of a calling thread is asked to do, stretch by stretch: `[from, to]`. */
async function stretchesOf(
  thread: CallingThread,
  batch: ReturnType<typeof rowsOf>,
  cost: typeof TOY_COST,
  taken = (_from: number): number => 0,
): Promise<[number, number][]> {
  const stretches: [number, number][] = [];
  const job = toyJob("sum", batch);
  const verifier = {
    verify(_batch: unknown, from: number, to: number) {
      stretches.push([from, to]);
      const until = performance.now() + taken(from);
      while (performance.now() < until);
    },
  };
  await thread.run(job, verifier, cost);
  return stretches;
}

describe("the calling thread's stretches", () => {
  const LONG = 2 * 1024 * 1024;
  const cost = { ...TOY_COST, itemMicros: 1, byteNanos: 3 };
  const short = (count: number) => Array.from({ length: count }, () => [1, 1, 1] as const);

  test("are cut by what the very items take, and a long one is a stretch by itself", async () => {
    const batch = rowsOf([...short(3), [1, LONG, 1], ...short(3), [1, LONG, 1], [1, LONG, 1]]);
    const stretches = await stretchesOf(new CallingThread(new Stretches()), batch, cost);
    expect(stretches).toContainEqual([3, 4]);
    expect(stretches).toContainEqual([7, 8]);
    expect(stretches).toContainEqual([8, 9]);
  });

  test("learn from a long message what bytes take, and nothing about short items", async () => {
    const thread = new CallingThread(new Stretches());
    const batch = rowsOf([[1, LONG, 1], ...short(1_000)]);
    const stretches = await stretchesOf(thread, batch, cost, (from) => (from === 0 ? 60 : 0));
    expect(stretches).toEqual([
      [0, 1],
      [1, 1_001],
    ]);
    // Ten times slower than it was said: what would have fitted into one stretch is cut now.
    const middle = rowsOf(Array.from({ length: 2 }, () => [1, LONG / 8, 1] as const));
    expect(await stretchesOf(new CallingThread(new Stretches()), middle, cost)).toEqual([[0, 2]]);
    expect(await stretchesOf(thread, middle, cost)).toEqual([
      [0, 1],
      [1, 2],
    ]);
  });

  test("learn what items take for each cost by itself", async () => {
    const thread = new CallingThread(new Stretches());
    await stretchesOf(thread, rowsOf(short(1)), cost, () => 50);
    expect(await stretchesOf(thread, rowsOf(short(2)), cost)).toEqual([
      [0, 1],
      [1, 2],
    ]);
    expect(await stretchesOf(thread, rowsOf(short(2)), { ...cost })).toEqual([[0, 2]]);
  });

  test("count nothing for an item outside of its batch, whatever lengths it claims", async () => {
    const batch = rowsOf(short(100));
    for (let item = 0; item < 100; item++) batch.table[item * TABLE_STRIDE + 3] = 0xffff_ffff;
    expect(await stretchesOf(new CallingThread(new Stretches()), batch, cost)).toEqual([[0, 100]]);
  });
});

describe("ranges", () => {
  /** The starts, and the cost of each range in microseconds. */
  function cut(batch: ReturnType<typeof rowsOf>, cost: typeof TOY_COST, workers: number) {
    let nanos = 0;
    for (let item = 0; item < batch.count; item++) nanos += itemNanos(batch, item, cost);
    const starts = rangeStarts(batch, batch.count, nanos, cost, workers);
    expect(starts[0]).toBe(0);
    expect(starts.at(-1)).toBe(batch.count);
    expect(starts.every((start, range) => range === 0 || start > starts[range - 1]!)).toBe(true);
    const micros = starts.slice(1).map((end, range) => {
      let sum = 0;
      for (let item = starts[range]!; item < end; item++) sum += itemNanos(batch, item, cost);
      return sum / 1_000;
    });
    return { starts, micros };
  }

  test("are never empty, cover the slice, and give each worker one", () => {
    for (const scheme of SCHEMES) {
      for (const count of [1, 2, 7, 1_000, 16_384]) {
        for (const message of [0, 200, 100_000]) {
          const batch = rowsOf(Array.from({ length: count }, () => [32, message, 64] as const));
          const { starts, micros } = cut(batch, costOf(scheme), 4);
          expect(starts.length - 1).toBeGreaterThanOrEqual(Math.min(4, count));
          const one = micros[0]! / starts[1]!;
          expect(Math.max(...micros)).toBeLessThanOrEqual(Math.max(one * 1.001, costOf(scheme).rangeMicros));
        }
      }
    }
  });

  test("take about the same time each, however uneven the items are", () => {
    const cost = { ...TOY_COST, itemMicros: 50, byteNanos: 3, rangeMicros: 4_000 };
    // A few large messages, 3 ms each, in one corner, and thousands of small ones.
    const batch = rowsOf(
      Array.from({ length: 10_000 }, (_, item) => [32, item < 50 ? 1_000_000 : 32, 64] as const),
    );
    const { starts, micros } = cut(batch, cost, 2);
    expect(Math.max(...micros)).toBeLessThanOrEqual(4_000);
    expect(starts.slice(0, 50)).toEqual(Array.from({ length: 50 }, (_, item) => item));
    expect(starts[51]! - starts[50]!).toBeGreaterThan(50);
  });

  test("longer than they should be have one long item, at their end", () => {
    const cost = { ...TOY_COST, itemMicros: 50, byteNanos: 3, rangeMicros: 4_000 };
    const batch = rowsOf(
      Array.from({ length: 200 }, (_, item) => [32, item === 100 ? 10_000_000 : 32, 64] as const),
    );
    const { starts, micros } = cut(batch, cost, 2);
    const long = micros.flatMap((each, range) => (each > 4_000 ? [range] : []));
    expect(long).toHaveLength(1);
    expect([starts[long[0]!], starts[long[0]! + 1]]).toEqual([100, 101]);
  });

  test("of BLS are the items that are tried as one; of items with many keys they are shorter", () => {
    const single = rowsOf(Array.from({ length: 16_384 }, () => [48, 32, 96] as const));
    const params: Params = { ...DEFAULT_PARAMS, form: "same-message" };
    const { starts } = cut(single, costOf("bls12-381", params), 2);
    expect(starts).toEqual(Array.from({ length: 129 }, (_, range) => range * 128));
    // Every tenth has 256 keys.
    const mixed = rowsOf(
      Array.from({ length: 1_000 }, (_, item) => [item % 10 === 9 ? 48 * 256 : 48, 32, 96] as const),
    );
    const { micros } = cut(mixed, costOf("bls12-381", params), 2);
    expect(Math.max(...micros)).toBeLessThanOrEqual(costOf("bls12-381", params).rangeMicros);
    expect(Math.max(...micros)).toBeLessThan(1.5 * Math.min(...micros));
  });

  test("of BLS aggregates count a message and a pairing for each key", () => {
    const params: Params = { ...DEFAULT_PARAMS, form: "aggregate" };
    const batch = rowsOf(Array.from({ length: 100 }, () => [48 * 128, 36 * 128, 96] as const));
    const { starts } = cut(batch, costOf("bls12-381", params), 2);
    expect(starts.length - 1).toBeGreaterThan(50);
  });
});

describe("costs", () => {
  test("are the same object for the same scheme and form: what was learnt is kept by it", () => {
    for (const scheme of SCHEMES) {
      expect(costOf(scheme).itemMicros).toBeGreaterThan(0);
      expect(costOf(scheme, { ...DEFAULT_PARAMS })).toBe(costOf(scheme));
    }
  });

  test("grow with the message, so that one that takes long to hash goes to a worker", () => {
    const cost = costOf("ed25519");
    expect(estimateMicros(rowsOf([[32, 100, 64]]), cost)).toBeLessThan(cost.callingMicros);
    expect(estimateMicros(rowsOf([[32, 1_000_000, 64]]), cost)).toBeGreaterThan(cost.callingMicros);
  });

  test("do not grow with lengths that lie outside of the batch", () => {
    const batch = rowsOf([[32, 100, 64]]);
    batch.table[3] = 0xffff_ffff;
    expect(estimateMicros(batch, costOf("ed25519"))).toBeLessThan(100);
  });
});

test("the worker's code is found from source, and elsewhere only under its own name", () => {
  expect(workerEntry()).toEqual({ path: expect.stringMatching(/lib.verify.pool.worker\.ts$/) });
  expect(workerEntry("/no/such/folder/bundle.js")).toEqual({ missing: expect.stringContaining("worker.ts") });
  expect(workerEntry("/$bunfs/root/program")).toEqual({
    missing: expect.stringMatching(/bun build .*node_modules\/@luxfi\/zap\/lib\/verify\/pool\/worker\.ts/),
  });
});
