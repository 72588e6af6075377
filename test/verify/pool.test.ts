import { afterEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { AbortedError, ClosedError } from "../../lib/errors/index.ts";
import { DEFAULT_PARAMS } from "../../lib/verify/contract.ts";
import { NoWorkersError, Stretches, WorkerPool, type PoolSettings } from "../../lib/verify/pool/index.ts";
import { toyBatch, toyJob, TOY_COST } from "./pool-toys.ts";

const ENTRY = join(import.meta.dir, "pool-worker.ts");
const MIB = 1024 * 1024;

const pools: WorkerPool[] = [];

function open(given: Partial<PoolSettings> = {}, entry = ENTRY): WorkerPool {
  const settings = { workers: 2, poolBytes: 8 * MIB, idleMillis: 60_000, ...given };
  const pool = new WorkerPool(entry, settings, new Stretches());
  pools.push(pool);
  return pool;
}

afterEach(() => {
  for (const pool of pools.splice(0)) pool.close();
});

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await Bun.sleep(1);
}

/** The error of a promise that must reject. */
async function failure(promise: Promise<unknown>): Promise<Error & { code?: string }> {
  return promise.then(
    () => expect.unreachable(),
    (error: Error) => error,
  );
}

describe("the pool verifies", () => {
  for (const shared of [false, true]) {
    test(`batches of 0 to 10,000, ${shared ? "in shared memory" : "copied"}`, async () => {
      const pool = open();
      for (const count of [0, 1, 2, 15, 16, 17, 31, 33, 100, 1_000, 1_023, 1_025, 4_099, 10_000]) {
        const { batch, expected } = toyBatch(count, { shared });
        const job = toyJob("sum", batch);
        await pool.run(job, TOY_COST);
        expect(job.codes).toEqual(expected);
      }
      expect(pool.state).toEqual({ workers: 2, batches: 0, slots: 0 });
    });

    test(`more than fits into one slice, ${shared ? "in shared memory" : "copied"}`, async () => {
      const pool = open();
      const { batch, expected } = toyBatch(40_000, { shared, extra: 200 });
      const job = toyJob("sum", batch);
      await pool.run(job, TOY_COST);
      expect(job.codes).toEqual(expected);
    });
  }

  test("an item larger than a slice, and larger than what is copied at once", async () => {
    const pool = open();
    for (const length of [600 * 1024, 3 * MIB]) {
      const bytes = new Uint8Array(3 + length).fill(1);
      bytes[2 + length] = (2 + length) & 255;
      const small = [0, 1, 1, 1, 0, 1];
      const table = Uint32Array.from([
        ...small,
        0,
        2,
        2,
        length,
        2 + length,
        1,
        ...small,
        0,
        2,
        2,
        length,
        0,
        1,
      ]);
      const job = toyJob("sum", { bytes, table, count: 4 });
      await pool.run(job, TOY_COST);
      const last = bytes[0] === ((2 + length) & 255) ? 1 : 0;
      expect([...job.codes]).toEqual([0, 1, 0, last]);
    }
  });

  test("parts that are far apart, overlap and come in any order", async () => {
    const pool = open();
    const bytes = new Uint8Array(100_000);
    bytes[0] = 3;
    bytes[99_998] = 4;
    bytes[50_000] = 7;
    const rows = [
      [99_998, 1, 0, 1, 50_000, 1],
      [0, 1, 99_998, 1, 50_000, 1],
      [0, 1, 0, 1, 50_000, 1],
      [0, 0, 100_000, 0, 1, 1],
      [0, 0, 100_001, 0, 1, 1],
      [4_294_967_295, 4_294_967_295, 0, 0, 1, 1],
    ];
    const job = toyJob("sum", { bytes, table: Uint32Array.from(rows.flat()), count: rows.length });
    await pool.run(job, TOY_COST);
    expect([...job.codes]).toEqual([1, 1, 0, 1, 2, 2]);
  });

  test("many batches at once, each with its own verdicts", async () => {
    const pool = open();
    const batches = Array.from({ length: 30 }, (_, index) =>
      toyBatch(index * 211, { shared: index % 2 === 0 }),
    );
    const jobs = batches.map(({ batch }) => toyJob("sum", batch));
    await Promise.all(jobs.map((job) => pool.run(job, TOY_COST)));
    for (const [index, job] of jobs.entries()) expect(job.codes).toEqual(batches[index]!.expected);
    expect(pool.state).toEqual({ workers: 2, batches: 0, slots: 0 });
  });

  test("a small batch while a large one is under way", async () => {
    const pool = open({ workers: 1 });
    const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(2) };
    const cost = { ...TOY_COST, itemMicros: 2_000, rangeMicros: 4_000 };
    let largeDone = false;
    const large = pool
      .run(toyJob("slow", toyBatch(400).batch, { params }), cost)
      .then(() => (largeDone = true));
    const { batch, expected } = toyBatch(20);
    const job = toyJob("slow", batch, { params });
    await pool.run(job, cost);
    expect(largeDone).toBe(false);
    expect(job.codes).toEqual(expected);
    await large;
  });
});

test("workers have the environment that the program has when they start", async () => {
  const { batch } = toyBatch(100);
  for (const [value, code] of [
    ["valid", 1],
    [undefined, 0],
  ] as const) {
    if (value === undefined) delete process.env["ZAP_TEST_TOY"];
    else process.env["ZAP_TEST_TOY"] = value;
    const job = toyJob("env", batch);
    await open().run(job, TOY_COST);
    expect([...new Set(job.codes)]).toEqual([code]);
  }
});

describe("an abort", () => {
  test("before the batch rejects at once", async () => {
    const pool = open();
    const error = await failure(
      pool.run(toyJob("sum", toyBatch(10).batch, { signal: AbortSignal.abort("no") }), TOY_COST),
    );
    expect(error).toBeInstanceOf(AbortedError);
    expect(error.cause).toBe("no");
    expect(pool.state.workers).toBe(0);
  });

  for (const shared of [false, true]) {
    test(`in the middle rejects soon, and nothing stays behind (${shared ? "shared" : "copied"})`, async () => {
      const pool = open();
      const controller = new AbortController();
      const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(1) };
      const { batch } = toyBatch(50_000, { shared });
      const job = toyJob("slow", batch, { params, signal: controller.signal });
      const running = failure(pool.run(job, { ...TOY_COST, itemMicros: 1_000, rangeMicros: 5_000 }));
      await until(() => pool.state.workers > 0);
      await Bun.sleep(20);
      controller.abort(new Error("enough"));
      const error = await running;
      expect(error).toBeInstanceOf(AbortedError);
      expect((error.cause as Error).message).toBe("enough");
      expect(pool.state.batches).toBe(0);
      await until(() => pool.state.slots === 0);
      // The workers are free, and the same memory serves the next batch.
      const { batch: next, expected } = toyBatch(20_000);
      const second = toyJob("sum", next);
      await pool.run(second, TOY_COST);
      expect(second.codes).toEqual(expected);
      expect(pool.state).toEqual({ workers: 2, batches: 0, slots: 0 });
    });
  }

  test("of many batches that wait for memory", async () => {
    const pool = open();
    const controller = new AbortController();
    const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(1) };
    const { batch } = toyBatch(2_000);
    const runs = Array.from({ length: 40 }, () =>
      failure(pool.run(toyJob("slow", batch, { params, signal: controller.signal }), TOY_COST)),
    );
    await until(() => pool.state.slots === 8 && pool.state.workers === 2);
    controller.abort();
    for (const error of await Promise.all(runs)) expect(error).toBeInstanceOf(AbortedError);
    await until(() => pool.state.slots === 0);
    expect(pool.state).toEqual({ workers: 2, batches: 0, slots: 0 });
  });
});

describe("a worker that is lost", () => {
  const FAULTS = ["exit", "throw", "stray"] as const;

  /** A shared batch where item `at` is the one that ends its worker. */
  function trapped(count: number, at: number) {
    const { batch, expected } = toyBatch(count, { shared: true });
    const key = batch.table[at * 6]!;
    // What its first byte will be read as once the trap is sprung.
    const shift = 254 - batch.bytes[key]!;
    batch.bytes[key] = 255;
    batch.bytes[batch.table[at * 6 + 4]!]! += shift;
    return { batch, expected };
  }

  for (const fault of FAULTS) {
    test(`by ${fault}: another does its part again`, async () => {
      const pool = open();
      for (const at of [0, 1_500, 2_999]) {
        const { batch, expected } = trapped(3_000, at);
        const job = toyJob(`${fault}-once`, batch);
        const beside = toyBatch(5_000);
        const other = toyJob("sum", beside.batch);
        await Promise.all([pool.run(job, TOY_COST), pool.run(other, TOY_COST)]);
        expect(job.codes).toEqual(expected);
        expect(other.codes).toEqual(beside.expected);
      }
      await until(() => pool.state.slots === 0);
    });
  }

  for (const fault of ["exit", "throw"] as const) {
    test(`by ${fault} again and again: the batch rejects, others do not`, async () => {
      const pool = open();
      const { batch } = trapped(3_000, 1_500);
      const beside = toyBatch(20_000);
      const other = toyJob("sum", beside.batch);
      const [error] = await Promise.all([
        failure(pool.run(toyJob(fault, batch), TOY_COST)),
        pool.run(other, TOY_COST),
      ]);
      expect(error.code).toBe("ERR_ZAP_VERIFY");
      expect(error.message).toContain(`twice over the same ${fault} items`);
      if (fault === "throw") expect(error.message).toContain("the toy is broken");
      expect(other.codes).toEqual(beside.expected);
      const again = toyJob("sum", beside.batch);
      await pool.run(again, TOY_COST);
      expect(again.codes).toEqual(beside.expected);
      await until(() => pool.state.slots === 0);
    });
  }

  test("with one worker alone, its successor does it", async () => {
    const pool = open({ workers: 1 });
    const { batch, expected } = trapped(200, 100);
    const job = toyJob("exit-once", batch);
    await pool.run(job, TOY_COST);
    expect(job.codes).toEqual(expected);
  });

  test("because its scheme does not load: the error says so", async () => {
    const error = await failure(open().run(toyJob("no-such", toyBatch(100).batch), TOY_COST));
    expect(error.code).toBe("ERR_ZAP_VERIFY");
    expect(error.message).toContain("there is no toy no-such");
  });

  test("before it came up: there are no workers", async () => {
    const pool = open({}, join(import.meta.dir, "no-such-worker.ts"));
    const error = await failure(pool.run(toyJob("sum", toyBatch(100).batch), TOY_COST));
    expect(error).toBeInstanceOf(NoWorkersError);
    expect(pool.state.batches).toBe(0);
  });
});

describe("the pool ends", () => {
  test("its workers when there has been nothing to do for a while, and starts new ones", async () => {
    const pool = open({ idleMillis: 20 });
    const { batch, expected } = toyBatch(1_000);
    for (let round = 0; round < 2; round++) {
      const job = toyJob("sum", batch);
      await pool.run(job, TOY_COST);
      expect(job.codes).toEqual(expected);
      expect(pool.state.workers).toBe(2);
      await until(() => pool.state.workers === 0);
    }
  });

  test("when it is closed, with an error for what is under way; and can be used again", async () => {
    const pool = open();
    const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(1) };
    const running = failure(pool.run(toyJob("slow", toyBatch(5_000).batch, { params }), TOY_COST));
    await until(() => pool.state.workers === 2);
    pool.close();
    expect(await running).toBeInstanceOf(ClosedError);
    expect(pool.state).toEqual({ workers: 0, batches: 0, slots: 0 });
    const { batch, expected } = toyBatch(1_000);
    const job = toyJob("sum", batch);
    await pool.run(job, TOY_COST);
    expect(job.codes).toEqual(expected);
  });

  test("a batch whose memory is taken away in the middle rejects", async () => {
    const pool = open();
    const { batch } = toyBatch(100_000);
    const running = failure(pool.run(toyJob("sum", batch), TOY_COST));
    await Bun.sleep(1);
    (batch.bytes.buffer as ArrayBuffer).transfer(0);
    const error = await running;
    expect(error.code).toBe("ERR_ZAP_VERIFY");
    expect(error.message).toContain("released");
  });
});

test("a storm of batches that end well, are aborted, and lose their workers", async () => {
  const pool = open({ workers: 3 });
  let seed = 7;
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 8) % below;
  };
  const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(0) };
  const one = async (): Promise<void> => {
    const scheme = ["sum", "sum", "slow", "exit-once", "throw"][random(5)]!;
    const { batch, expected } = toyBatch(random(3_000), { shared: random(2) === 0, extra: random(3) * 100 });
    const controller = new AbortController();
    const job = toyJob(scheme, batch, { params, signal: controller.signal });
    if (scheme === "exit-once" && batch.count > 0) {
      const { bytes, table } = batch;
      const key = table[random(batch.count) * 6]!;
      // The sum of the item is no longer right; all others are.
      bytes[key] = 255;
    }
    const fate = random(3);
    if (fate === 0) setTimeout(() => controller.abort(), random(5));
    try {
      await pool.run(job, TOY_COST);
    } catch (error) {
      if (error instanceof AbortedError) expect(fate).toBe(0);
      else expect((error as { code?: string }).code).toBe("ERR_ZAP_VERIFY");
      return;
    }
    const wrong = job.codes.filter((code, at) => code !== expected[at]).length;
    expect(wrong).toBeLessThanOrEqual(scheme === "exit-once" ? 1 : 0);
  };
  for (let round = 0; round < (process.env["ZAP_TEST_SOAK"] === "1" ? 200 : 10); round++) {
    await Promise.all(Array.from({ length: 12 }, one));
  }
  await until(() => pool.state.slots === 0);
  expect(pool.state.batches).toBe(0);
}, 120_000);
