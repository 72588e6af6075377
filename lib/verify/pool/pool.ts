/**
 * The pool: batches are cut into slices, slices are handed to the workers, and their codes collected. A batch has two slices under way, so that workers
 * never wait for the event loop, and waits in line with other batches for the memory of the next.
 */
import { ClosedError } from "../../errors/index.ts";
import type { Job } from "../contract.ts";
import type { Cost } from "./cost.ts";
import { Crew, type Member } from "./crew.ts";
import { cut, type Cut } from "./cut.ts";
import { aborted, lostMany, lostTwice, NoWorkersError } from "./failures.ts";
import type { PoolSettings } from "./settings.ts";
import { Slice } from "./slice.ts";
import { Slots, type Slot } from "./slots.ts";
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
  readonly members: Member[];
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
      gone: (member) => this.#gone(member),
    });
  }

  get state(): PoolState {
    return { workers: this.#crew.size, batches: this.#batches.size, slots: this.#slots.out };
  }

  /**
   * Fills `job.codes`. Rejects with `AbortedError` at once where the signal fires, with `NoWorkersError` where no worker starts, and with
   * `ERR_ZAP_VERIFY` where workers were lost twice over the same items or there is no shared memory. `codes` means nothing unless it resolves.
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
    const workers = Math.min(this.#settings.workers, cost.workers ?? this.#settings.workers);
    const by = {
      cost,
      workers,
      slots: this.#slots,
      stretches: this.#stretches,
      ended: () => batch.ended,
      length: job.batch.bytes.length,
    };
    for (let from = 0; from < count;) {
      while (slices.size >= SLICES_PER_BATCH && !batch.ended) await change(batch);
      if (batch.ended) return;
      const slot = await this.#slots.take();
      let slice: Slice | null = null;
      try {
        const part = await cut(slot, job.batch, from, by);
        if (part !== null && !batch.ended) slice = this.#slice(batch, slot, { from, ...part });
      } finally {
        if (slice === null) this.#slots.give(slot, false);
      }
      if (slice === null) return;
      slices.add(slice);
      const given = { slice, batch, members: [] };
      this.#given.set(slice.id, given);
      this.#send(given, Math.min(workers, slice.ranges));
      from += slice.message.count;
    }
    while (slices.size > 0 && !batch.ended) await change(batch);
  }

  #slice({ id: batch, job: { scheme, params } }: Batch, slot: Slot, part: Cut & { from: number }): Slice {
    this.#lastId += 1;
    return new Slice(this.#lastId, { batch, scheme, params }, slot, part);
  }

  #send({ slice, batch, members }: Given, many: number): void {
    try {
      const chosen = this.#crew.send(slice.message, many);
      members.push(...chosen.filter((each) => !members.includes(each)));
    } catch (error) {
      this.#end(batch, new NoWorkersError(error instanceof Error ? error.message : String(error)));
    }
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
    const none = this.#failedStarts >= FAILED_STARTS && !this.#crew.begun;
    for (const { slice, batch } of this.#givenTo(member)) {
      const again = slice.retry(slice.free(member.id));
      if (none) this.#end(batch, new NoWorkersError(why));
      else if (!again) this.#end(batch, lostTwice(batch.job.scheme, why));
      else if (this.#failedWorkers >= FAILED_WORKERS)
        this.#end(batch, lostMany(batch.job.scheme, FAILED_WORKERS, why));
    }
    this.#passOn(member);
    this.#stir();
  }

  /** Between the moment when it was lost and now it may have taken or finished one more range, and nobody was told. */
  #gone(member: Member): void {
    for (const { slice } of this.#givenTo(member)) slice.free(member.id);
    this.#passOn(member);
  }

  /** What `member` had goes to another, unless it is over. */
  #passOn(member: Member): void {
    for (const given of this.#givenTo(member)) {
      const { slice, members } = given;
      this.#settled(slice.id);
      if (!this.#given.has(slice.id) || slice.stopped) continue;
      if (members.includes(member)) members.splice(members.indexOf(member), 1);
      this.#send(given, 1);
    }
  }

  #givenTo(member: Member): Given[] {
    return [...member.slices].map((id) => this.#given.get(id)).filter((given) => given !== undefined);
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
