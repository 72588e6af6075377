/** Verifies on the calling thread: a small batch at once, a larger one in stretches between which the event loop runs. */
import { AbortedError } from "../../errors/index.ts";
import type { SchemeVerifier } from "../contract.ts";
import { checkHeld } from "../held.ts";
import { bytesNanos, type Cost } from "./cost.ts";
import type { PoolJob } from "./pool.ts";
import type { Rows } from "../rows.ts";
import type { Stretches } from "./stretches.ts";

/** What a stretch is meant to take, nanoseconds. */
const STRETCH_NANOS = 2_000_000;
/** What a stretch can show at most about an estimate that was too high: one that is over sooner than its smaller share says nothing about the larger. */
const LEAST_OFF = 0.1;

/** What items take for themselves and what their bytes take, nanoseconds; or how far off, as a factor, the one and the other were lately. */
interface Shares {
  items: number;
  bytes: number;
}

export class CallingThread {
  readonly #stretches: Stretches;
  /** How estimates have to be corrected, for each cost and scheme. */
  readonly #seen = new Map<Cost, Map<string, Shares>>();

  constructor(stretches: Stretches) {
    this.#stretches = stretches;
  }

  /**
   * Fills `job.codes`. Rejects with `AbortedError` between two stretches where the signal fires. A single item that takes longer than a stretch is one by
   * itself: nothing can be done in between.
   */
  async run(
    job: PoolJob,
    verifier: SchemeVerifier,
    cost: Cost,
    length = job.batch.bytes.length,
  ): Promise<void> {
    const { batch, params, codes, signal } = job;
    const factors = this.#factors(job.scheme, cost);
    for (let from = 0; from < batch.count;) {
      const { to, shares } = stretch(batch, from, batch.count, cost, factors);
      const nanos = shares.items + shares.bytes;
      const wait = this.#stretches.enter(nanos);
      if (wait !== null) await wait;
      const start = Bun.nanoseconds();
      let later: Promise<void> | null = null;
      try {
        if (signal?.aborted) throw new AbortedError("verify", signal.reason);
        checkHeld(batch, length);
        const part = codes.subarray(from, to);
        later = verifier.later?.(batch, from, to, params, part) ?? null;
        if (later === null) verifier.verify(batch, from, to, params, part);
      } finally {
        this.#stretches.leave(nanos, Bun.nanoseconds() - start);
      }
      if (later === null) learn(factors, shares, Bun.nanoseconds() - start);
      else {
        await later;
        checkHeld(batch, length);
      }
      from = to;
    }
  }

  #factors(scheme: string, cost: Cost): Shares {
    let schemes = this.#seen.get(cost);
    if (schemes === undefined) this.#seen.set(cost, (schemes = new Map()));
    let factors = schemes.get(scheme);
    if (factors === undefined) schemes.set(scheme, (factors = { items: 1, bytes: 1 }));
    return factors;
  }
}

/** The items from `from` on that fit into one stretch, one at least. */
function stretch(rows: Rows, from: number, end: number, cost: Cost, factors: Shares) {
  const each = cost.itemMicros * 1_000 * factors.items;
  const shares: Shares = { items: 0, bytes: 0 };
  let to = from;
  for (; to < end; to++) {
    const bytes = bytesNanos(rows, to, cost) * factors.bytes;
    if (to > from && shares.items + each + shares.bytes + bytes > STRETCH_NANOS) break;
    shares.items += each;
    shares.bytes += bytes;
  }
  return { to, shares };
}

/**
 * What was taken says something about the larger share only, so that one long message does not make every item look slow. Slower at
 * once, faster by and by: a stretch that is too long is worse than one that is too short.
 */
function learn(factors: Shares, { items, bytes }: Shares, taken: number): void {
  const [larger, share, other]: [keyof Shares, number, number] =
    items >= bytes ? ["items", items, bytes] : ["bytes", bytes, items];
  const before = factors[larger];
  const now = before * Math.max(LEAST_OFF, (taken - other) / share);
  factors[larger] = Math.max(now, before * 0.75 + now * 0.25);
}
