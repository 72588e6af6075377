/** Which pages of an area are free. Asked seldom and for much: the pool cuts its slabs from what it gets here. */

/** The smallest page of the systems that we run on; what is cut off begins at a multiple of it. */
export const PAGE_BYTES = 4096;

interface Gap {
  at: number;
  bytes: number;
}

export class FreePages {
  /** In order of place; no two touch. */
  private readonly gaps: Gap[];

  /** All of the area's whole pages. */
  constructor(bytes: number) {
    const whole = bytes - (bytes % PAGE_BYTES);
    this.gaps = whole === 0 ? [] : [{ at: 0, bytes: whole }];
  }

  /** The largest piece that is left, in bytes. */
  get largest(): number {
    return this.gaps.reduce((most, { bytes }) => Math.max(most, bytes), 0);
  }

  /** Where a piece of whole pages for `bytes` begins: the first that is large enough. Null where there is none. */
  take(bytes: number): number | null {
    const need = inPages(bytes);
    const index = this.gaps.findIndex((gap) => gap.bytes >= need);
    const gap = this.gaps[index];
    if (gap === undefined) return null;
    const { at } = gap;
    gap.at += need;
    gap.bytes -= need;
    if (gap.bytes === 0) this.gaps.splice(index, 1);
    return at;
  }

  /** Takes back what `take` gave for that many bytes, and joins it with what is free on either side. */
  give(at: number, bytes: number): void {
    const end = at + inPages(bytes);
    const found = this.gaps.findIndex((gap) => gap.at > at);
    const index = found === -1 ? this.gaps.length : found;
    const before = this.gaps[index - 1];
    const after = this.gaps[index];
    const start = before !== undefined && before.at + before.bytes === at ? before.at : at;
    const stop = after !== undefined && after.at === end ? after.at + after.bytes : end;
    const first = start === at ? index : index - 1;
    const joined = (start === at ? 0 : 1) + (stop === end ? 0 : 1);
    this.gaps.splice(first, joined, { at: start, bytes: stop - start });
  }
}

function inPages(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES;
}
