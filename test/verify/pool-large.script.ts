/**
 * A batch of so many items (the first argument) of so many bytes (the second), not in shared memory, through the pool: prints whether the
 * verdicts are right, by how much the process grew meanwhile, and how long at most the event loop was kept busy before it came round again.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Stretches, WorkerPool } from "../../lib/verify/pool/index.ts";
import { toyBatch, toyJob, TOY_COST } from "./pool-toys.ts";

const [count, extra] = process.argv.slice(2).map(Number) as [number, number];
const settings = { workers: 2, poolBytes: 8 * 1024 * 1024, idleMillis: 600_000 };
const pool = new WorkerPool(join(import.meta.dir, "pool-worker.ts"), settings, new Stretches());

const cost = { ...TOY_COST, itemMicros: 5 };
await pool.run(toyJob("sum", toyBatch(20_000, { extra }).batch), cost);

const { batch, expected } = toyBatch(count, { extra });
const job = toyJob("sum", batch);
Bun.gc(true);
await Bun.sleep(20);

/** What this thread has worked so far, milliseconds: on a busy machine the clock also counts what others do. */
function worked(): number {
  if (process.platform !== "linux") return performance.now();
  return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ")[0]) / 1e6;
}

const before = process.memoryUsage.rss();
let most = before;
let last = worked();
let longest = 0;
const look = setInterval(() => {
  const now = worked();
  longest = Math.max(longest, now - last);
  last = now;
  most = Math.max(most, process.memoryUsage.rss());
}, 1);
await pool.run(job, cost);
clearInterval(look);
const right = Bun.deepEquals(job.codes, expected);
console.log(
  JSON.stringify({
    right,
    batchBytes: batch.bytes.length,
    grownBytes: most - before,
    longestMillis: longest,
  }),
);
