/**
 * The pool: batches are cut into slices, slices are handed to the workers, and their codes collected. A batch has two slices under way, so that workers
 * never wait for the event loop, and waits in line with other batches for the memory of the next.
 */
import { AbortedError, ClosedError, ZapError } from "../../errors/index.ts";
import type { Job } from "../contract.ts";
import { rangeItems, type Cost } from "./cost.ts";
import { Crew, type Member } from "./crew.ts";
import { cut } from "./cut.ts";
import type { PoolSettings } from "./settings.ts";
import { Slice } from "./slice.ts";
import { Slots } from "./slots.ts";
import type { Stretches } from "./stretches.ts";

/** A job of any scheme that the workers can load. */
export type PoolJob = Omit<Job, "scheme"> & { readonly scheme: string };

/** Slices of one batch under way at once: while one is verified, the next is made ready. */
const SLICES_PER_BATCH = 2;
/** So many workers in a row that never came up: there will be none. */
const FAILED_STARTS = 3;
/** So many workers in a row that were lost, with nothing done in between: a batch does not wait for one more. */
const FAILED_WORKERS = 16;
/** Timers take no more; it only has to be there. */
const FOREVER = 2_147_483_647;

/** Workers cannot be started on this host; the calling thread can do the work instead. */
export class NoWorkersError extends ZapError {
  constructor(why: string) {
    super("ERR_ZAP_VERIFY", `verify: no worker could be started: ${why}`);
  }
}

interface Batch {
  readonly id: number;
  readonly job: PoolJob;
  readonly cost: Cost;
  readonly slices: Set<Slice>;
  /** Settles what `run` returned; undefined is success. */
  readonly settle: (error?: Error) => void;
  ended: boolean;
  /** Wakes `feed` when a slice is over, or the batch. */
  changed: () => void;
}

/** A slice that workers may still have. */
interface Given {
  readonly slice: Slice;
  readonly batch: Batch;
  members: Member[];
}

export interface PoolState {
  readonly workers: number;
  readonly batches: number;
  /** Pieces of shared memory in use. */
  readonly slots: number;
}

export class WorkerPool {
  readonly #settings: PoolSettings;
  readonly #stretches: Stretches;
  readonly #crew: Crew;
  readonly #slots: Slots;
  readonly #batches = new Set<Batch>();
  /** Those of batches that have ended included, until no worker has them any more. */
  readonly #given = new Map<number, Given>();
  #lastId = 0;
  #failedStarts = 0;
  #failedWorkers = 0;
  /** Keeps the process alive while batches are under way. */
  #hold: Timer | null = null;
  #idle: Timer | null = null;

  /** `path`: the worker's entry. Workers are started when there is work for them. */
  constructor(path: string, settings: PoolSettings, stretches: Stretches) {
    this.#settings = settings;
    this.#stretches = stretches;
    this.#slots = new Slots(settings.poolBytes);
    this.#crew = new Crew(path, settings.workers, {
      settled: (slice) => this.#settled(slice),
      lost: (member, why, begun) => this.#lost(member, why, begun),
    });
  }

  get state(): PoolState {
    return { workers: this.#crew.size, batches: this.#batches.size, slots: this.#slots.out };
  }

  /**
   * Fills `job.codes`. Rejects with `AbortedError` at once where the signal fires, with `NoWorkersError` where no worker starts, and with
   * `ERR_ZAP_VERIFY` where workers were lost twice over the same items. `codes` means nothing unless it resolves.
   */
  run(job: PoolJob, cost: Cost): Promise<void> {
    const { signal } = job;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(aborted(signal));
      const onAbort = (): void => this.#end(batch, aborted(signal!));
      const settle = (error?: Error): void => {
        signal?.removeEventListener("abort", onAbort);
        if (error === undefined) resolve();
        else reject(error);
      };
      this.#lastId += 1;
      const batch: Batch = {
        id: this.#lastId,
        job,
        cost,
        slices: new Set(),
        settle,
        ended: false,
        changed: () => {},
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#batches.add(batch);
      this.#stir();
      this.#feed(batch).then(
        () => this.#end(batch),
        (error: Error) => this.#end(batch, error),
      );
    });
  }

  /** Ends the workers at once. Batches that are under way reject with `ClosedError`. */
  close(): void {
    for (const batch of [...this.#batches]) this.#end(batch, new ClosedError("verify: the pool was closed"));
    this.#crew.end();
    // Their threads may take a moment to end: nothing that they had is used again.
    for (const given of [...this.#given.values()]) this.#take(given, true);
    this.#stir();
  }

  /** Cuts the batch and hands it out. Resolves when all of it is done, or it has ended. */
  async #feed(batch: Batch): Promise<void> {
    const { job, cost, slices } = batch;
    const { count } = job.batch;
    const by = {
      slots: this.#slots,
      stretches: this.#stretches,
      ended: () => batch.ended,
      length: job.batch.bytes.length,
    };
    for (let from = 0; from < count;) {
      while (slices.size >= SLICES_PER_BATCH && !batch.ended) await change(batch);
      if (batch.ended) return;
      const slot = await this.#slots.take();
      let part = null;
      try {
        part = await cut(slot, job.batch, from, by);
      } finally {
        if (part === null || batch.ended) this.#slots.give(slot, false);
      }
      if (part === null || batch.ended) return;
      const workers = Math.min(this.#settings.workers, cost.workers ?? this.#settings.workers);
      const items = rangeItems(cost, part.to - from, part.partBytes, workers, part.keyBytes);
      this.#lastId += 1;
      const of = { batch: batch.id, scheme: job.scheme, params: job.params };
      const slice = new Slice(this.#lastId, of, slot, { from, rangeItems: items, ...part });
      slices.add(slice);
      this.#give({ slice, batch, members: [] }, workers);
      from = part.to;
    }
    while (slices.size > 0 && !batch.ended) await change(batch);
  }

  #give(given: Given, workers: number): void {
    const { slice } = given;
    this.#given.set(slice.id, given);
    given.members = this.#crew.send(slice.message, Math.min(workers, slice.ranges));
  }

  /** Something happened to a slice: it may be over. */
  #settled(id: number): void {
    const given = this.#given.get(id);
    if (given === undefined) return;
    const { slice, batch } = given;
    if (slice.stopped ? !slice.quiet : !slice.done) return;
    this.#failedStarts = 0;
    this.#failedWorkers = 0;
    if (!batch.ended) batch.job.codes.set(slice.slot.codes.subarray(0, slice.message.count), slice.from);
    this.#take(given, slice.lost);
    batch.slices.delete(slice);
    batch.changed();
    this.#stir();
  }

  #take({ slice, members }: Given, lost: boolean): void {
    this.#given.delete(slice.id);
    for (const member of members) member.slices.delete(slice.id);
    this.#slots.give(slice.slot, lost);
  }

  /** What a lost worker had is free again, for another; once. */
  #lost(member: Member, why: string, begun: boolean): void {
    if (!begun) this.#failedStarts += 1;
    this.#failedWorkers += 1;
    const none = this.#failedStarts >= FAILED_STARTS;
    for (const id of member.slices) {
      const given = this.#given.get(id);
      if (given === undefined) continue;
      const { slice, batch } = given;
      const again = slice.free(member.id);
      if (none) this.#end(batch, new NoWorkersError(why));
      else if (!again || this.#failedWorkers >= FAILED_WORKERS) this.#end(batch, lostTwice(batch, why));
      this.#settled(id);
      if (!this.#given.has(id) || slice.stopped) continue;
      given.members = given.members.filter((each) => each !== member);
      given.members.push(
        ...this.#crew.send(slice.message, 1).filter((each) => !given.members.includes(each)),
      );
    }
    this.#stir();
  }

  #end(batch: Batch, error?: Error): void {
    if (batch.ended) return;
    batch.ended = true;
    this.#batches.delete(batch);
    for (const slice of batch.slices) slice.stop();
    for (const slice of [...batch.slices]) this.#settled(slice.id);
    batch.changed();
    batch.settle(error);
    this.#stir();
  }

  /** Timers for what is under way now: something, or nothing. */
  #stir(): void {
    const busy = this.#batches.size > 0;
    if (busy && this.#hold === null) this.#hold = setInterval(() => {}, FOREVER);
    if (!busy && this.#hold !== null) {
      clearInterval(this.#hold);
      this.#hold = null;
    }
    if (this.#idle !== null) clearTimeout(this.#idle);
    this.#idle = null;
    if (busy || this.#given.size > 0 || this.#crew.size === 0) return;
    this.#idle = setTimeout(() => {
      this.#idle = null;
      this.#crew.end();
      this.#slots.forget();
    }, this.#settings.idleMillis);
    this.#idle.unref();
  }
}

function change(batch: Batch): Promise<void> {
  return new Promise((resolve) => (batch.changed = resolve));
}

function aborted(signal: AbortSignal): AbortedError {
  return new AbortedError("verify", signal.reason);
}

function lostTwice({ job }: Batch, why: string): ZapError {
  return new ZapError(
    "ERR_ZAP_VERIFY",
    `verify: a worker was lost twice over the same ${job.scheme} items: ${why}`,
  );
}
