/** Verifies on the calling thread: a small batch at once, a larger one in stretches between which the event loop runs. */
import { AbortedError, ZapError } from "../../errors/index.ts";
import { TABLE_STRIDE, type SchemeVerifier } from "../contract.ts";
import type { Cost } from "./cost.ts";
import type { PoolJob } from "./pool.ts";
import type { Stretches } from "./stretches.ts";

/** What a stretch is meant to take, nanoseconds. */
const STRETCH_NANOS = 4_000_000;

export class CallingThread {
  readonly #stretches: Stretches;
  /** Nanoseconds for an item of a scheme, as seen here lately. */
  readonly #seen = new Map<string, number>();

  constructor(stretches: Stretches) {
    this.#stretches = stretches;
  }

  /** Fills `job.codes`. Rejects with `AbortedError` between two stretches where the signal fires. */
  async run(
    job: PoolJob,
    verifier: SchemeVerifier,
    cost: Cost,
    length = job.batch.bytes.length,
  ): Promise<void> {
    const { batch, params, codes, signal } = job;
    for (let from = 0; from < batch.count;) {
      const each = this.#seen.get(job.scheme) ?? cost.itemMicros * 1_000;
      const to = Math.min(batch.count, from + Math.max(1, Math.floor(STRETCH_NANOS / each)));
      const nanos = (to - from) * each;
      const wait = this.#stretches.enter(nanos);
      if (wait !== null) await wait;
      const start = Bun.nanoseconds();
      let later: Promise<void> | null = null;
      try {
        if (signal?.aborted) throw new AbortedError("verify", signal.reason);
        if (batch.bytes.length !== length || batch.table.length < batch.count * TABLE_STRIDE)
          throw new ZapError(
            "ERR_ZAP_VERIFY",
            "verify: the batch's bytes or table were released or changed in size while it was verified",
          );
        const part = codes.subarray(from, to);
        later = verifier.later?.(batch, from, to, params, part) ?? null;
        if (later === null) verifier.verify(batch, from, to, params, part);
      } finally {
        this.#stretches.leave(nanos, Bun.nanoseconds() - start);
      }
      if (later === null) this.#learn(job.scheme, each, (Bun.nanoseconds() - start) / (to - from));
      else await later;
      from = to;
    }
  }

  /** Slower at once, faster by and by: a stretch that is too long is worse than one that is too short. */
  #learn(scheme: string, before: number, now: number): void {
    this.#seen.set(scheme, Math.max(now, before * 0.75 + now * 0.25));
  }
}
