/** Faults that a real thread or a real host has too seldom to wait for: the test plays the workers, and the runtime that has no memory left. */
import { afterEach, expect, test } from "bun:test";
import { join } from "node:path";
import { ZapError } from "../../lib/errors/index.ts";
import { CODE } from "../../lib/verify/contract.ts";
import { NoWorkersError, Stretches, WorkerPool } from "../../lib/verify/pool/index.ts";
import {
  DONE,
  FREE,
  PROTOCOL,
  STATES,
  type FromWorker,
  type SliceMessage,
  type ToWorker,
} from "../../lib/verify/pool/protocol.ts";
import { toyBatch, toyJob, TOY_COST } from "./pool-toys.ts";

const real = { Worker: globalThis.Worker, SharedArrayBuffer: globalThis.SharedArrayBuffer };
const pools: WorkerPool[] = [];

afterEach(() => {
  Object.assign(globalThis, real);
  for (const pool of pools.splice(0)) pool.close();
});

function open(entry = join(import.meta.dir, "pool-worker.ts"), workers = 1): WorkerPool {
  const settings = { workers, poolBytes: 8 * 1024 * 1024, idleMillis: 60_000 };
  const pool = new WorkerPool(entry, settings, new Stretches());
  pools.push(pool);
  return pool;
}

/** A worker without a thread: does what the test says. */
class Puppet extends EventTarget {
  static all: Puppet[] = [];
  onmessage: ((event: { data: FromWorker }) => void) | null = null;
  onerror: unknown = null;
  readonly slices: SliceMessage[] = [];
  id = 0;

  constructor() {
    super();
    Puppet.all.push(this);
    queueMicrotask(() => this.say({ ready: PROTOCOL }));
  }

  postMessage(message: ToWorker): void {
    if ("id" in message) this.id = message.id;
    else this.slices.push(message);
  }

  say(data: FromWorker): void {
    this.onmessage?.({ data });
  }

  /** Takes a range of its first slice. */
  take(range: number): void {
    const { control } = this.slices[0]!;
    expect(Atomics.compareExchange(control, STATES + range, FREE, this.id)).toBe(FREE);
  }

  /** Finishes every range that is free or its own, with the verdict `signature`. */
  finishAll(): void {
    const { control, slice } = this.slices[0]!;
    for (let word = STATES; word < control.length; word++) {
      Atomics.compareExchange(control, word, FREE, DONE);
      Atomics.compareExchange(control, word, this.id, DONE);
    }
    this.say({ slice });
  }

  terminate(): void {}
  unref(): void {}
}

function puppets(): Puppet[] {
  Puppet.all = [];
  Object.assign(globalThis, { Worker: Puppet });
  return Puppet.all;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await Bun.sleep(1);
}

/** A batch under way whose only worker was lost over range 0, and the one that came in its place. */
async function lostOnce() {
  const all = puppets();
  const pool = open();
  const job = toyJob("sum", toyBatch(200).batch);
  const running = pool.run(job, TOY_COST);
  await until(() => all[0]?.slices.length === 1);
  const first = all[0]!;
  first.take(0);
  first.say({ failed: "lost" });
  await until(() => all[1]?.slices.length === 1);
  return { pool, job, running, first, second: all[1]! };
}

test("a range that a lost worker took before its thread ended goes to another", async () => {
  const { pool, job, running, first, second } = await lostOnce();
  first.take(5);
  second.finishAll();
  await Bun.sleep(1);
  expect(pool.state.batches).toBe(1);
  first.dispatchEvent(new Event("close"));
  await until(() => second.slices.length === 2);
  second.finishAll();
  await running;
  expect([...new Set(job.codes)]).toEqual([CODE.signature]);
  expect(pool.state).toEqual({ workers: 1, batches: 0, slots: 0 });
});

test("a range that a lost worker finished before its thread ended is not waited for", async () => {
  const { pool, running, first, second } = await lostOnce();
  first.take(5);
  second.finishAll();
  first.finishAll();
  first.dispatchEvent(new Event("close"));
  await running;
  expect(pool.state).toEqual({ workers: 1, batches: 0, slots: 0 });
});

test("an aborted batch gives its memory back although a lost worker took a range late", async () => {
  const all = puppets();
  const pool = open();
  const controller = new AbortController();
  const running = pool.run(toyJob("sum", toyBatch(200).batch, { signal: controller.signal }), TOY_COST);
  await until(() => all[0]?.slices.length === 1);
  const first = all[0]!;
  first.say({ failed: "lost" });
  await until(() => all[1]?.slices.length === 1);
  first.take(5);
  controller.abort();
  expect(await running.catch((error: Error) => error.name)).toBe("AbortError");
  expect(pool.state.slots).toBe(1);
  first.dispatchEvent(new Event("close"));
  expect(pool.state.slots).toBe(0);
});

test("a runtime that makes no worker: there are none, and nothing stays behind", async () => {
  const pool = open();
  Object.assign(globalThis, {
    Worker: class {
      constructor() {
        throw new Error("no more threads");
      }
    },
  });
  for (let round = 0; round < 10; round++) {
    const error = await pool
      .run(toyJob("sum", toyBatch(50).batch), TOY_COST)
      .catch((error: unknown) => error);
    expect(error).toBeInstanceOf(NoWorkersError);
    expect((error as Error).message).toContain("no more threads");
  }
  expect(pool.state).toEqual({ workers: 0, batches: 0, slots: 0 });
});

test("a runtime that makes some workers and no more: those do the work", async () => {
  let made = 0;
  Object.assign(globalThis, {
    Worker: class extends real.Worker {
      constructor(path: string) {
        if (++made > 1) throw new Error("no more threads");
        super(path);
      }
    },
  });
  const pool = open(undefined, 4);
  const { batch, expected } = toyBatch(400);
  const job = toyJob("sum", batch);
  await pool.run(job, TOY_COST);
  expect(job.codes).toEqual(expected);
  expect(pool.state.workers).toBe(1);
});

/** From now on shared memory of `size` bytes, or of any, is refused. */
function noMemory(refused: (size: number) => boolean): void {
  Object.assign(globalThis, {
    SharedArrayBuffer: class extends real.SharedArrayBuffer {
      constructor(size: number) {
        if (refused(size)) throw new RangeError("Out of memory");
        super(size);
      }
    },
  });
}

const REFUSED: readonly [string, (size: number) => boolean][] = [
  ["a slot", () => true],
  ["the copy of a slice", (size) => size === 1024 * 1024],
  ["what a slice is shared out by", (size) => size < 1_000],
];
for (const [what, refused] of REFUSED) {
  test(`no memory for ${what}: a clear error, and the pool goes on when there is some again`, async () => {
    const pool = open();
    const { batch, expected } = toyBatch(100);
    noMemory(refused);
    const runs = Array.from({ length: 20 }, () => pool.run(toyJob("sum", batch), TOY_COST));
    for (const run of await Promise.allSettled(runs)) {
      const { reason } = run as PromiseRejectedResult;
      expect(reason).toBeInstanceOf(ZapError);
      expect(reason.message).toMatch(/no shared memory of \d+ bytes for the workers: Out of memory/);
    }
    expect(pool.state).toMatchObject({ batches: 0, slots: 0 });
    Object.assign(globalThis, real);
    const job = toyJob("sum", batch);
    await pool.run(job, TOY_COST);
    expect(job.codes).toEqual(expected);
  });
}

test("no memory for a slot in the place of a lost one: who waits for it is told", async () => {
  const all = puppets();
  const pool = open();
  const runs = Array.from({ length: 12 }, () => pool.run(toyJob("sum", toyBatch(100).batch), TOY_COST));
  const settled = Promise.allSettled(runs);
  await until(() => all[0]?.slices.length === 8);
  noMemory(() => true);
  // All slots are lost at once, and four batches wait for one.
  pool.close();
  const reasons = (await settled).map((run) => (run as PromiseRejectedResult).reason as ZapError);
  for (const reason of reasons) expect(reason).toBeInstanceOf(ZapError);
  await until(() => pool.state.slots === 0);
});

test("a verifier that writes no verdict leaves none of another batch", async () => {
  const pool = open();
  const { batch } = toyBatch(100);
  await pool.run(toyJob("sum", batch), TOY_COST);
  const job = toyJob("lazy", batch);
  await pool.run(job, TOY_COST);
  expect([...new Set(job.codes)]).toEqual([CODE.signature]);
});
