/**
 * The pool: hands out buffers of unified memory, makes those wait who cannot have one yet, and gives the memory back when it is closed
 * and nobody holds any of it.
 */
import { AbortedError, ClosedError, ConfigError, PoolError } from "../errors/index.ts";
import type { SlabBuffer } from "./buffer.ts";
import { debugMode } from "./debug-mode.ts";
import type { MemoryKind } from "./kind.ts";
import { type BufferHome, PooledBuffer } from "./slab-buffer.ts";
import { PoolEnd, type PoolCloseOptions, type PoolReport } from "./slab-end.ts";
import { Leaks, type LeakReport, warnOfLeak } from "./slab-leaks.ts";
import type { Slab } from "./slab-region.ts";
import { type LossCause, SlabStore } from "./slab-store.ts";
import { Waiters } from "./slab-waiters.ts";

/** What a released buffer is filled with in debug mode. */
export const POISON = 0xdb;

export interface PoolOptions {
  /** Most bytes that the kind is asked for in all; 0 for no bound. */
  readonly poolBytes: number;
  /** What an operator sets for it, for the error that says that it is too little. Default: `poolBytes (ZAP_UMA_POOL_BYTES)`. */
  readonly setting?: string;
  /**
   * Touching a buffer as the wrong owner throws, a release fills the memory with 0xDB and empties its views, and leaks are reported
   * one by one with where they were asked for. It costs some microseconds a buffer. Default: `ZAP_DEBUG=1`.
   */
  readonly debug?: boolean;
  /** Told of memory that is lost to the pool, once each. Default: a warning of the process. */
  readonly onLeak?: (report: LeakReport) => void;
}

export interface PoolStats {
  /** As it was set; 0 for no bound. */
  readonly poolBytes: number;
  /** Bytes that the kind has given and not got back; never above `poolBytes`. */
  readonly reservedBytes: number;
  /** Bytes of the slabs that are out, and the most there ever were. */
  readonly usedBytes: number;
  readonly peakBytes: number;
  /** Buffers that were not released yet. */
  readonly buffers: number;
  /** Calls of `alloc` that wait. */
  readonly waiting: number;
  /** Those of `buffers` that were collected, so that nobody can release them any more, and the bytes of their slabs. */
  readonly leakedBuffers: number;
  readonly leakedBytes: number;
  /** Bytes of released buffers that nobody gets again: somebody may still see them, or the device failed on them. */
  readonly lostBytes: number;
}

/**
 * Sizes up to 1 MiB get the smallest slab that holds them, of 256 B, 1 KiB, 4 KiB, 16 KiB, 64 KiB and 1 MiB, cut from regions of 16 MiB (a
 * sixteenth of the pool where that is less). Larger ones, and those whose slab finds no room where they themselves would,
 * get a region of their own, which counts exactly as asked. Regions that nothing is out of go back to the kind when something else
 * needs the room, or when the kind has no more to give.
 */
export class SlabPool implements BufferHome {
  readonly kind: MemoryKind;
  readonly poolBytes: number;
  readonly debug: boolean;
  private readonly setting: string;
  private readonly store: SlabStore;
  private readonly waiters = new Waiters();
  private readonly leaks: Leaks;
  private end: PoolEnd | null = null;
  private buffers = 0;
  private usedBytes = 0;
  private peakBytes = 0;

  /** Takes the kind over: closing the pool closes it. Throws `ConfigError` for a `poolBytes` that is not a size. */
  constructor(kind: MemoryKind, options: PoolOptions) {
    const { poolBytes, debug = debugMode(), onLeak = warnOfLeak } = options;
    this.setting = options.setting ?? "poolBytes (ZAP_UMA_POOL_BYTES)";
    if (!Number.isSafeInteger(poolBytes) || poolBytes < 0)
      throw new ConfigError(`poolBytes is ${String(poolBytes)}; it takes whole bytes, 0 for no bound`);
    this.kind = kind;
    this.poolBytes = poolBytes;
    this.debug = debug;
    this.leaks = new Leaks(onLeak, () => this.changed());
    this.store = new SlabStore(kind, poolBytes === 0 ? Infinity : poolBytes, (cause, bytes, error) =>
      this.lost(cause, bytes, error),
    );
  }

  /**
   * A buffer of `size` bytes with arbitrary contents. Waits while the pool is full or the kind has no more memory, strictly in order of
   * asking, and only while something is out that may come back.
   *
   * Rejects with `ConfigError` where `size` is not a positive whole number; `PoolError` at once where it can never fit, and
   * where it cannot fit any more because memory was lost; what the kind fails with, when nothing is out to wait for;
   * `AbortedError`, after which nothing is lost and the next in line have their turn; `ClosedError`.
   */
  alloc(size: number, options?: { signal?: AbortSignal | undefined }): Promise<SlabBuffer> {
    const signal = options?.signal;
    try {
      if (signal?.aborted) throw new AbortedError("alloc", signal.reason);
      const buffer = this.tryAlloc(size);
      if (buffer !== null) return Promise.resolve(buffer);
    } catch (error) {
      return Promise.reject(error);
    }
    // What we wait for may have been collected: let it be found.
    this.leaks.turn();
    return this.waiters.wait(size, this.trace(), signal, () => this.changed());
  }

  /**
   * The same without waiting: null where `alloc` would wait. It never overtakes those who wait. Throws what `alloc` rejects with.
   * A `lasting` buffer is watched for leaks by itself, so that those that were asked for with it need not outlive it to be found.
   */
  tryAlloc(size: number, lasting = false): SlabBuffer | null {
    if (this.end !== null) throw new ClosedError("alloc: the pool is closed");
    if (!(size <= this.store.largest) || size < 1 || !Number.isSafeInteger(size)) throw this.refusal(size);
    if (this.waiters.first !== null) return null;
    const slab = this.store.take(size, true);
    if (slab !== null) return this.handOut(slab, size, this.trace(), lasting);
    if (this.outstanding > 0) return null;
    throw this.whyNot(size);
  }

  /** Calls of `alloc` that wait. */
  get waiting(): number {
    return this.waiters.length;
  }

  stats(): PoolStats {
    return {
      poolBytes: this.poolBytes,
      reservedBytes: this.store.reservedBytes,
      usedBytes: this.usedBytes,
      peakBytes: this.peakBytes,
      buffers: this.buffers,
      waiting: this.waiters.length,
      leakedBuffers: this.leaks.buffers,
      leakedBytes: this.leaks.bytes,
      lostBytes: this.store.lostBytes,
    };
  }

  /**
   * Rejects those who wait and gives the memory back. What is still out stays valid: each region goes back with its last buffer, and the
   * kind is closed when all have; never, where memory is lost. `outstanding` says whether to wait for that or to
   * "report" what is out (the default). Closing again is harmless, and may wait where the first call did not.
   *
   * Rejects with `AbortedError` when `signal` ends the waiting (the pool stays closed), and with what the kind fails to close with.
   */
  async close(options: PoolCloseOptions = {}): Promise<PoolReport> {
    const { outstanding = "report", signal } = options;
    if (outstanding !== "report" && outstanding !== "wait")
      throw new ConfigError(`outstanding is ${JSON.stringify(outstanding)}; it takes "report" or "wait"`);
    const end = (this.end ??= this.shut());
    if (outstanding === "wait") await end.quiet(signal);
    const report = { buffers: this.buffers, bytes: this.usedBytes };
    await end.kindClosed;
    return report;
  }

  /** The other half of `release`, for buffers alone. */
  takeBack(buffer: PooledBuffer): void {
    const { slab, epoch, size } = buffer;
    if (this.debug) this.wipe(slab, size);
    this.accountBack(slab, epoch.count);
    if (slab.intact) this.store.give(slab);
    else this.store.lose(slab, "detached", null);
    if (this.waiters.first !== null || this.end !== null) this.changed();
  }

  /** The same where the device failed. */
  lose({ slab, epoch }: PooledBuffer, error: unknown): void {
    this.accountBack(slab, epoch.count);
    this.store.lose(slab, error instanceof PoolError ? "detached" : "device", error);
    this.changed();
  }

  /** Buffers that somebody may still release. */
  private get outstanding(): number {
    return this.buffers - this.leaks.buffers;
  }

  private trace(): string | null {
    return this.debug ? (new Error("the buffer was asked for here").stack ?? "") : null;
  }

  private handOut(slab: Slab, size: number, stack: string | null, lasting = false): SlabBuffer {
    const epoch = stack === null && !lasting ? this.leaks.join() : this.leaks.alone(stack);
    const { bytes } = slab;
    const { count } = epoch;
    count.buffers++;
    count.bytes += bytes;
    this.buffers++;
    this.usedBytes += bytes;
    if (this.usedBytes > this.peakBytes) this.peakBytes = this.usedBytes;
    return new PooledBuffer(this, slab, size, epoch);
  }

  private accountBack(slab: Slab, count: { buffers: number; bytes: number }): void {
    const { bytes } = slab;
    count.buffers--;
    count.bytes -= bytes;
    this.buffers--;
    this.usedBytes -= bytes;
  }

  private wipe(slab: Slab, size: number): void {
    if (!slab.intact || !this.kind.reach.cpu) return;
    slab.look(size).fill(POISON);
    slab.detach();
  }

  /** Something came back, was lost or was given up: sees whose turn it is. */
  private changed(): void {
    if (this.end !== null) return this.end.changed();
    for (let waiter = this.waiters.first; waiter !== null; waiter = this.waiters.first) {
      const { size, stack } = waiter;
      const slab = this.store.take(size, this.outstanding === 0);
      if (slab === null && this.outstanding > 0) return;
      this.waiters.remove(waiter);
      if (slab !== null) waiter.resolve(this.handOut(slab, size, stack));
      else waiter.reject(this.whyNot(size));
    }
  }

  private lost(cause: LossCause, bytes: number, error: unknown): void {
    this.leaks.report({ cause, buffers: 0, bytes, stack: null, error });
  }

  private shut(): PoolEnd {
    this.leaks.turn();
    const end = new PoolEnd(this.kind, this.store, () => this.outstanding, this.leaks);
    this.end = end;
    for (let waiter = this.waiters.first; waiter !== null; waiter = this.waiters.first) {
      this.waiters.remove(waiter);
      waiter.reject(new ClosedError("alloc: the pool was closed"));
    }
    end.changed();
    return end;
  }

  /** Why there is no memory although nothing is out that could come back. */
  private whyNot(size: number): unknown {
    const { store, leaks } = this;
    if (store.refusal !== null) return store.refusal;
    const lost = `${store.lostBytes + leaks.bytes} of the pool's ${store.limit} bytes are lost`;
    return new PoolError(
      `alloc: ${size} bytes do not fit any more: ${lost}, ${leaks.bytes} of them in buffers that were never released`,
    );
  }

  private refusal(size: number): ConfigError | PoolError {
    if (!Number.isSafeInteger(size) || size < 1)
      return new ConfigError(
        `alloc: the size must be a whole number of bytes above 0, and it is ${String(size)}`,
      );
    const { largest, limit } = this.store;
    return largest === limit
      ? new PoolError(`alloc: ${size} bytes never fit into a pool of ${limit}: raise ${this.setting}`)
      : new PoolError(`alloc: ${size} bytes are more than one buffer can have, ${largest}`);
  }
}
