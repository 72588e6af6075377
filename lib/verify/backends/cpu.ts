/**
 * The CPU: every scheme, on every host. Small batches are verified on the calling thread, others by the worker pool; without workers (a setting, or a
 * bundle that lacks their code) the calling thread does everything, in stretches.
 */
import type { Backend, Job, Scheme } from "../contract.ts";
import {
  CallingThread,
  costOf,
  estimateMicros,
  NoWorkersError,
  poolSettings,
  Stretches,
  workerEntry,
  WorkerPool,
  type Entry,
} from "../pool/index.ts";
import type { Env } from "../../settings/index.ts";
import { blsKeysSetting } from "../schemes/bls-keys.ts";
import { schemeVerifier } from "../schemes/index.ts";

/** Which threads verify here. */
export type CpuWorkers = { readonly most: number; readonly running: number } | { readonly none: string };

/** Of many small batches at once, those that would be more for the calling thread go to the workers. */
const HERE_MOST_MICROS = 4_000;

const ASKED_FOR_NONE = "ZAP_VERIFY_WORKERS is 0";

export class CpuBackend implements Backend {
  readonly name = "cpu";
  readonly #env: Env;
  readonly #entry: Entry;
  readonly #stretches = new Stretches();
  readonly #callingThread = new CallingThread(this.#stretches);
  /** What the batches on the calling thread still take, about. */
  #hereMicros = 0;
  #pool: WorkerPool | null | undefined;
  /** Why there are no workers, where there are none. */
  #none = "";
  #warned = false;

  /** Reads no setting and starts nothing yet. `entry`: where the workers' code is. */
  constructor(env: Env = process.env, entry: Entry = workerEntry()) {
    this.#env = env;
    this.#entry = entry;
  }

  serves(_scheme: Scheme): true {
    return true;
  }

  /** How many workers may be started, and how many there are now; or why there are none. Throws `ConfigError` for a bad setting. */
  workers(): CpuWorkers {
    const pool = this.#thePool();
    if (pool === null) return { none: this.#none };
    return { most: poolSettings(this.#env).workers, running: pool.state.workers };
  }

  async run(job: Job): Promise<void> {
    const cost = costOf(job.scheme, job.params);
    const { length } = job.batch.bytes;
    const pool = this.#thePool();
    // Each thread reads it when it loads the scheme; the caller is told here.
    if (job.scheme === "bls12-381") blsKeysSetting(this.#env);
    const micros = estimateMicros(job.batch, cost);
    const small = micros < cost.callingMicros && this.#hereMicros + micros <= HERE_MOST_MICROS;
    if (pool !== null && !small) {
      try {
        return await pool.run(job, cost);
      } catch (error) {
        if (!(error instanceof NoWorkersError)) throw error;
        this.#pool = null;
        this.#none = error.message;
      }
    }
    if (!small) this.#warn();
    this.#hereMicros += micros;
    try {
      await this.#callingThread.run(job, await schemeVerifier(job.scheme), cost, length);
    } finally {
      this.#hereMicros -= micros;
    }
  }

  /** Ends the workers; they start again with the next batch. */
  close(): void {
    this.#pool?.close();
  }

  #thePool(): WorkerPool | null {
    if (this.#pool !== undefined) return this.#pool;
    const settings = poolSettings(this.#env);
    const entry = this.#entry;
    if (settings.workers === 0) this.#none = ASKED_FOR_NONE;
    else if ("missing" in entry) this.#none = entry.missing;
    else return (this.#pool = new WorkerPool(entry.path, settings, this.#stretches));
    return (this.#pool = null);
  }

  /** One core instead of all of them, and nobody asked for that: it must not go unnoticed. */
  #warn(): void {
    if (this.#warned || this.#none === ASKED_FOR_NONE) return;
    this.#warned = true;
    const why = this.#none.replace(/^verify: /, "");
    const message = `verify: the calling thread verifies everything: ${why}`;
    process.emitWarning(message, { type: "ZapWarning", code: "ERR_ZAP_VERIFY" });
  }
}
