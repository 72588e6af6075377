/** A pool that was closed, until nobody holds any of its memory. */
import { AbortedError } from "../errors/index.ts";
import type { MemoryKind } from "./kind.ts";
import type { Leaks } from "./slab-leaks.ts";
import type { SlabStore } from "./slab-store.ts";

export interface PoolCloseOptions {
  /** `wait` until every buffer was released, or `report` how many are out. Default: `report`. */
  readonly outstanding?: "report" | "wait";
  /** Ends the waiting. */
  readonly signal?: AbortSignal | undefined;
}

/** What was out when `close` resolved. With `wait` that is 0, or what has leaked. */
export interface PoolReport {
  readonly buffers: number;
  /** Bytes of their slabs. */
  readonly bytes: number;
}

export class PoolEnd {
  /** The kind's closing, once it was begun. */
  kindClosed: Promise<void> | null = null;
  private readonly kind: MemoryKind;
  private readonly store: SlabStore;
  private readonly outstanding: () => number;
  private readonly leaks: Leaks;
  private readonly waiting = new Set<() => void>();

  constructor(kind: MemoryKind, store: SlabStore, outstanding: () => number, leaks: Leaks) {
    this.kind = kind;
    this.store = store;
    this.outstanding = outstanding;
    this.leaks = leaks;
  }

  /** Gives back what nobody holds. */
  changed(): void {
    this.store.shrink();
    if (this.store.reservedBytes === 0) this.kindClosed ??= this.closeKind();
    if (this.outstanding() > 0) return;
    for (const resolve of this.waiting) resolve();
  }

  /** Resolves when nobody is left who could release anything. */
  async quiet(signal: AbortSignal | undefined): Promise<void> {
    if (this.outstanding() === 0) return;
    if (signal?.aborted) throw new AbortedError("close", signal.reason);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const onAbort = (): void => reject(new AbortedError("close", signal?.reason));
    this.waiting.add(resolve);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      await promise;
    } finally {
      this.waiting.delete(resolve);
      signal?.removeEventListener("abort", onAbort);
    }
  }

  private closeKind(): Promise<void> {
    const closed = (async () => this.kind.close())();
    // Whoever closes the pool is told. The last release may come later, and nobody may be there to ask.
    closed.catch((error) => this.leaks.report({ cause: "device", buffers: 0, bytes: 0, stack: null, error }));
    return closed;
  }
}
