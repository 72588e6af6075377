/**
 * The memory of a pool: regions from the kind, the slabs that are cut from them, and one-offs. It keeps what the kind gave within
 * `poolBytes`, and gives idle memory back only to make room for something else.
 */
import type { MemoryKind, Region } from "./kind.ts";
import { SlabRegion, type Slab } from "./slab-region.ts";
import { BUFFER_BYTES_MAX, ONE_OFF, orderOf, SLAB_BYTES } from "./slab-sizes.ts";
import { SlabTree } from "./slab-tree.ts";

const REGION_BYTES_MAX = 16 * 1024 ** 2;
/** A pool is made of at least so many regions, so that one long-lived buffer does not pin much of it. */
const REGIONS_MIN = 16;
/** Idle one-offs that are kept for the next buffer of the same size. */
const IDLE_ONE_OFFS_MAX = 4;
const IDLE_ONE_OFF_BYTES_MAX = 64 * 1024 ** 2;

/** Why memory was lost: `detached` by a user who transferred its `ArrayBuffer`, or the `device` failed on it. */
export type LossCause = "detached" | "device";
export type OnLoss = (cause: LossCause, bytes: number, error: unknown) => void;

export class SlabStore {
  /** Most bytes that the kind is asked for; Infinity where there is no bound. */
  readonly limit: number;
  /** Bytes that the kind has given and not got back. */
  reservedBytes = 0;
  /** Those of them in regions of which nothing is out. */
  private idleBytes = 0;
  /** Those that nobody will get any more. */
  lostBytes = 0;
  private readonly kind: MemoryKind;
  private readonly onLoss: OnLoss;
  private readonly tree = new SlabTree((slab) => this.loseFree(slab));
  private readonly regions: SlabRegion[] = [];
  /** Oldest first. */
  private readonly idleOneOffs: SlabRegion[] = [];
  private readonly topOrder: number;
  private readonly regionBytes: number;
  /** What to ask the kind for next: less than `regionBytes` while it has no more. */
  private goal: number;
  /** The smallest that the kind has refused since. */
  private refusedBytes = Infinity;
  /** What the kind failed with, unless it has given or got back a region since. */
  refusal: unknown = null;

  constructor(kind: MemoryKind, limit: number, onLoss: OnLoss) {
    this.kind = kind;
    this.limit = limit;
    this.onLoss = onLoss;
    this.topOrder = SLAB_BYTES.findLastIndex((bytes) => bytes <= limit);
    this.regionBytes = regionBytesOf(limit);
    this.goal = this.regionBytes;
  }

  /** The largest buffer that could ever be had. */
  get largest(): number {
    return Math.min(this.limit, BUFFER_BYTES_MAX);
  }

  /**
   * A slab for `size` bytes, or null where there is none now. `ask` says whether the kind is asked again for what it has refused,
   * though nothing has changed since.
   */
  take(size: number, ask: boolean): Slab | null {
    const order = orderOf(size);
    if (order === ONE_OFF || order > this.topOrder) return this.takeOneOff(size, ask);
    const slab = this.tree.take(order) ?? this.takeNew(order, ask);
    if (slab !== null) {
      this.claim(slab.region);
      return slab;
    }
    // The room that is left may be too small for a slab and large enough for the buffer.
    return size < SLAB_BYTES[order]! ? this.takeOneOff(size, ask) : null;
  }

  /** Takes back what `take` gave. */
  give(slab: Slab): void {
    const { region } = slab;
    if (--region.out === 0) this.idleBytes += region.memory.bytes;
    if (slab.order !== ONE_OFF) return this.tree.put(slab);
    this.idleOneOffs.push(region);
    let idle = this.idleOneOffs.reduce((sum, { memory }) => sum + memory.bytes, 0);
    while (this.idleOneOffs.length > IDLE_ONE_OFFS_MAX || idle > IDLE_ONE_OFF_BYTES_MAX) {
      idle -= this.idleOneOffs[0]!.memory.bytes;
      this.free(this.idleOneOffs[0]!);
    }
  }

  /** Takes back what `take` gave and nobody may have again: somebody still sees it. */
  lose(slab: Slab, cause: LossCause, error: unknown): void {
    this.lostBytes += slab.bytes;
    this.onLoss(cause, slab.bytes, error);
  }

  /** Gives everything back that is not in use. Says whether that was anything. */
  shrink(): boolean {
    return this.idleBytes > 0 && this.evict(() => false);
  }

  private claim(region: SlabRegion): void {
    if (region.out++ === 0) this.idleBytes -= region.memory.bytes;
  }

  private loseFree(slab: Slab): void {
    this.claim(slab.region);
    this.lose(slab, "detached", null);
  }

  private takeNew(order: number, ask: boolean): Slab | null {
    const need = SLAB_BYTES[order]!;
    if (!this.makeRoom(need)) return null;
    const room = wholeSlabs(this.limit - this.reservedBytes);
    const memory = this.ask(Math.min(room, Math.max(this.goal, need)), need, ask);
    if (memory === null) return null;
    // It has more than it seemed to have.
    this.goal = Math.min(this.regionBytes, Math.max(this.goal, 2 * memory.bytes));
    const region = new SlabRegion(memory, false);
    region.at = this.regions.length;
    this.regions.push(region);
    this.idleBytes += memory.bytes;
    for (let i = region.roots.length - 1; i >= 0; i--) this.tree.put(region.roots[i]!);
    return this.tree.take(order);
  }

  private takeOneOff(size: number, ask: boolean): Slab | null {
    const at = this.idleOneOffs.findLastIndex(({ memory }) => memory.bytes === size);
    const kept = at === -1 ? undefined : this.idleOneOffs.splice(at, 1)[0]!;
    if (kept !== undefined) {
      this.claim(kept);
      const slab = kept.roots[0]!;
      if (slab.intact) return slab;
      this.lose(slab, "detached", null);
    }
    const memory = this.makeRoom(size) ? this.ask(size, size, ask) : null;
    if (memory === null) return null;
    const region = new SlabRegion(memory, true);
    region.out = 1;
    return region.roots[0]!;
  }

  /** A region of `bytes`, or of as much as there is, `need` at least. */
  private ask(bytes: number, need: number, again: boolean): Region | null {
    if (!again && need >= this.refusedBytes && this.idleBytes === 0) return null;
    for (;;) {
      try {
        const memory = this.kind.allocRegion(bytes);
        this.reservedBytes += bytes;
        this.forgetRefusal();
        return memory;
      } catch (error) {
        if (this.shrink()) continue;
        if (bytes > need) {
          bytes = Math.max(need, wholeSlabs(bytes / 2));
          this.goal = bytes;
          continue;
        }
        this.refusedBytes = Math.min(this.refusedBytes, need);
        this.refusal = error;
        return null;
      }
    }
  }

  private forgetRefusal(): void {
    this.refusedBytes = Infinity;
    this.refusal = null;
  }

  /** Sees to it that the kind may be asked for `bytes`. Gives nothing back where that would not be enough. */
  private makeRoom(bytes: number): boolean {
    const fits = (): boolean => this.reservedBytes + bytes <= this.limit;
    if (fits()) return true;
    if (this.reservedBytes - this.idleBytes + bytes > this.limit) return false;
    this.evict(fits);
    return fits();
  }

  /** Gives idle memory back until that is `enough`, one-offs first, the oldest first. Says whether that was anything. */
  private evict(enough: () => boolean): boolean {
    const before = this.reservedBytes;
    while (this.idleOneOffs.length > 0 && !enough()) this.free(this.idleOneOffs[0]!);
    for (let i = this.regions.length - 1; i >= 0 && !enough(); i--) {
      const region = this.regions[i]!;
      if (region.out > 0) continue;
      for (const root of region.roots) this.tree.drop(root);
      this.free(region);
    }
    return this.reservedBytes < before;
  }

  /** Gives an idle region back to the kind; loses it where somebody may still see it. */
  private free(region: SlabRegion): void {
    const { memory } = region;
    if (region.at === -1) this.idleOneOffs.splice(this.idleOneOffs.indexOf(region), 1);
    else this.dropFromList(region);
    this.idleBytes -= memory.bytes;
    let error: unknown = null;
    const detached = region.detach();
    try {
      if (detached) memory.free();
    } catch (reason) {
      error = reason ?? new Error("unknown");
    }
    if (!detached || error !== null) {
      this.lostBytes += memory.bytes;
      return this.onLoss(detached ? "device" : "detached", memory.bytes, error);
    }
    this.reservedBytes -= memory.bytes;
    this.goal = this.regionBytes;
    this.forgetRefusal();
  }

  private dropFromList(region: SlabRegion): void {
    const last = this.regions.pop()!;
    if (last === region) return;
    this.regions[region.at] = last;
    last.at = region.at;
  }
}

/** Regions of a pool: a multiple of the largest slab that fits, so that nothing is left over in each. */
function regionBytesOf(limit: number): number {
  const share = Math.min(REGION_BYTES_MAX, limit / REGIONS_MIN);
  const slab = SLAB_BYTES.findLast((bytes) => bytes <= share) ?? SLAB_BYTES[0]!;
  return Math.floor(share / slab) * slab;
}

/** Rounds down to whole slabs of the smallest size. */
function wholeSlabs(bytes: number): number {
  return bytes === Infinity ? Infinity : Math.floor(bytes / SLAB_BYTES[0]!) * SLAB_BYTES[0]!;
}
