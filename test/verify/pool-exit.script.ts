/** What a process does that uses the pool and ends without a word: `done`, `aborted` or `exit` is its argument. */
import { join } from "node:path";
import { DEFAULT_PARAMS } from "../../lib/verify/contract.ts";
import { Stretches, WorkerPool } from "../../lib/verify/pool/index.ts";
import { toyBatch, toyJob, TOY_COST } from "./pool-toys.ts";

const settings = { workers: 2, poolBytes: 8 * 1024 * 1024, idleMillis: 600_000 };
const pool = new WorkerPool(join(import.meta.dir, "pool-worker.ts"), settings, new Stretches());
const params = { ...DEFAULT_PARAMS, context: Uint8Array.of(1) };

switch (process.argv[2]) {
  case "done": {
    // Nothing but the pool keeps the process alive until the verdicts are there.
    const { batch, expected } = toyBatch(200);
    const job = toyJob("slow", batch, { params });
    void pool
      .run(job, TOY_COST)
      .then(() => console.log(Bun.deepEquals(job.codes, expected) ? "right" : "wrong"));
    break;
  }
  case "aborted": {
    const signal = AbortSignal.timeout(30);
    const run = pool.run(toyJob("slow", toyBatch(60_000).batch, { params, signal }), TOY_COST);
    void run.catch((error: Error) => console.log(error.name));
    break;
  }
  case "exit":
    void pool.run(toyJob("slow", toyBatch(60_000).batch, { params }), TOY_COST);
    setTimeout(() => {
      console.log("leaving");
      process.exit(5);
    }, 50);
}
