/**
 * The CPU's cores: batches verified by worker threads over shared memory, and small ones on the calling thread.
 *
 * What lives here: `pool.ts` (batches to slices to workers), `cut.ts` and `slots.ts` (slices in shared memory of bounded size), `ranges.ts`, `slice.ts` and
 * `protocol.ts` (how workers share one out), `crew.ts` (workers started, ended, replaced), `serve.ts` and `worker.ts` (the worker's side), `entry.ts` (where its code is),
 * `calling-thread.ts` and `stretches.ts` (work on the event loop that never blocks it for long), `cost.ts` (what an item
 * takes, and what is small), `failures.ts`, `settings.ts`. May import: `../contract.ts`, `../held.ts`, `../rows.ts`, `../schemes`, settings, errors.
 * Start at `pool.ts`.
 */
export { CallingThread } from "./calling-thread.ts";
export { costOf, estimateMicros, type Cost } from "./cost.ts";
export { workerEntry, type Entry } from "./entry.ts";
export { NoWorkersError } from "./failures.ts";
export { WorkerPool, type PoolJob, type PoolState } from "./pool.ts";
export { poolSettings, type PoolSettings } from "./settings.ts";
export { Stretches } from "./stretches.ts";
