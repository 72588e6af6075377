/** Where the bytes of a connection come from. */
import type { Place } from "./place.ts";

/** What `read` answers where it read nothing; a positive number counts bytes. */
export const READ_END = 0;
export const READ_NOTHING = -1;
export const READ_BROKEN = -2;

export interface SlabSource {
  /**
   * Moves what has come into `first` from `firstAt` on, at most `firstBytes` (at least 1), then into `second`, where that is not
   * null. Never waits.
   */
  read(
    first: Place,
    firstAt: number,
    firstBytes: number,
    second: Place | null,
    secondAt: number,
    secondBytes: number,
  ): number;
}

/** What Bun has read already: the bytes behind a hello, and everything under TLS. They are copied, and counted as copied. */
export class ChunkSource implements SlabSource {
  private readonly chunks: Uint8Array[] = [];
  private taken = 0;
  /** No more will be pushed. */
  ended = false;
  copiedBytes = 0;

  push(chunk: Uint8Array): void {
    if (chunk.length > 0) this.chunks.push(chunk);
  }

  get empty(): boolean {
    return this.chunks.length === 0;
  }

  clear(): void {
    this.chunks.length = 0;
    this.taken = 0;
  }

  read(
    first: Place,
    firstAt: number,
    firstBytes: number,
    second: Place | null,
    secondAt: number,
    secondBytes: number,
  ): number {
    let count = this.copy(first, firstAt, firstBytes);
    if (count === firstBytes && second !== null) count += this.copy(second, secondAt, secondBytes);
    this.copiedBytes += count;
    if (count > 0) return count;
    return this.ended ? READ_END : READ_NOTHING;
  }

  private copy(slab: Place, at: number, bytes: number): number {
    let count = 0;
    for (let chunk = this.chunks[0]; chunk !== undefined && count < bytes; chunk = this.chunks[0]) {
      const take = Math.min(bytes - count, chunk.length - this.taken);
      slab.bytes.set(chunk.subarray(this.taken, this.taken + take), at + count);
      count += take;
      this.taken += take;
      if (this.taken < chunk.length) break;
      this.chunks.shift();
      this.taken = 0;
    }
    return count;
  }
}
