/** The slab that connections read small messages into, one connection after the other, until it is full. */
import type { SlabPool } from "../../../memory/index.ts";
import type { Place } from "./place.ts";
import { SlabShare } from "./share.ts";

/** Messages for the GPU begin where they came to lie; a new turn begins at a word. */
const ALIGN = 8;

export class StreamSlab {
  readonly bytes: number;
  /** Views of messages are emptied when those are released: debug mode. */
  readonly strict: boolean;
  /** Below this much room a new slab is taken. */
  private readonly least: number;
  private readonly pool: SlabPool;
  private current: SlabShare | null = null;
  private position = 0;

  constructor(pool: SlabPool, bytes: number) {
    this.pool = pool;
    this.strict = pool.debug;
    this.bytes = bytes;
    this.least = bytes / 16;
  }

  /**
   * The slab to read into from `at` on, or null where the pool has none at the moment. The caller holds it while he reads and parses
   * (`share.hold(1)`, then `letGo`).
   */
  open(): SlabShare | null {
    const { current } = this;
    if (current !== null) {
      // Nobody but us holds it: it can be used from the start again.
      if (current.holders === 1) this.position = 0;
      // Empty where a user has transferred a message away, and with it all of the slab.
      const intact = !current.spoilt && current.bytes.length === this.bytes;
      if (intact && this.bytes - this.position >= this.least) return current;
      this.close();
    }
    const slab = this.pool.tryAlloc(this.bytes, true);
    return slab === null ? null : this.adopt(slab);
  }

  /** Takes a slab that somebody waited for. Where there is one already, it goes back. */
  supply(slab: Place): void {
    if (this.current === null) this.adopt(slab);
    else slab.release();
  }

  private adopt(slab: Place): SlabShare {
    this.position = 0;
    return (this.current = new SlabShare(slab, 1, this.strict, () => this.relent()));
  }

  get at(): number {
    return this.position;
  }

  /** Everything before `end` is taken. */
  advance(end: number): void {
    this.position = Math.min(this.bytes, (end + ALIGN - 1) & -ALIGN);
  }

  /** Gives the slab up where it is empty and somebody waits for memory: it may be what keeps a region from going back. */
  relent(): void {
    if (this.current?.holders === 1 && this.pool.waiting > 0) this.close();
  }

  /** Gives the slab back as soon as its messages are released; the next `open` takes a new one. */
  close(): void {
    const { current } = this;
    this.current = null;
    current?.letGo();
  }
}
