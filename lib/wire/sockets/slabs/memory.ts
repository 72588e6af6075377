/** What the connections of one wire receive into. */
import type { SlabBuffer, SlabPool } from "../../../memory/index.ts";
import type { Poller } from "./poller.ts";
import { StreamSlab } from "./stream.ts";

/** One slab of the largest class. */
export const STREAM_BYTES = 1024 * 1024;

export class SlabMemory {
  readonly pool: SlabPool;
  /** Null where native receiving is not to be had: then Bun reads, and what it read is copied. */
  readonly poller: Poller | null;
  readonly stream: StreamSlab;
  /** Bytes copied on their way by connections that are gone. */
  copiedBytes = 0;

  constructor(pool: SlabPool, poller: Poller | null) {
    this.pool = pool;
    this.poller = poller;
    this.stream = new StreamSlab(pool, STREAM_BYTES);
  }

  /** `pool.alloc`, for which the stream's own slab makes way. */
  alloc(size: number, options?: { signal?: AbortSignal | undefined }): Promise<SlabBuffer> {
    const buffer = this.pool.alloc(size, options);
    this.stream.relent();
    return buffer;
  }

  /** The pool stays: it is closed by whoever made it. */
  close(): void {
    this.stream.close();
    this.poller?.close();
  }
}
