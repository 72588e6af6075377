/** The slab that connections read small messages into, one connection after the other, until it is full. */
import type { SlabBuffer, SlabPool } from "../../../memory/index.ts";
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

  /** The slab to read into from `at` on, or null where the pool has none at the moment. */
  open(): SlabShare | null {
    const { current } = this;
    if (current !== null) {
      // Nobody but us holds it: it can be used from the start again.
      if (current.holders === 1) this.position = 0;
      if (this.bytes - this.position >= this.least) return current;
      current.letGo();
      this.current = null;
    }
    const slab = this.pool.tryAlloc(this.bytes);
    return slab === null ? null : this.adopt(slab);
  }

  /** Takes a slab that somebody waited for. Where there is one already, it goes back. */
  supply(slab: SlabBuffer): void {
    if (this.current === null) this.adopt(slab);
    else slab.release();
  }

  private adopt(slab: SlabBuffer): SlabShare {
    this.position = 0;
    return (this.current = new SlabShare(slab, 1, this.strict));
  }

  get at(): number {
    return this.position;
  }

  /** Everything before `end` is taken. */
  advance(end: number): void {
    this.position = Math.min(this.bytes, (end + ALIGN - 1) & -ALIGN);
  }

  /** Gives the slab back as soon as its messages are released; the next `open` takes a new one. */
  close(): void {
    this.current?.letGo();
    this.current = null;
  }
}
