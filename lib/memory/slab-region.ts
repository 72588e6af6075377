/** A piece of a region that is handed out whole, and the region that it is a piece of. */
import { toArrayBuffer, type Pointer } from "bun:ffi";
import type { Region } from "./kind.ts";
import { ONE_OFF, SLAB_BYTES } from "./slab-sizes.ts";

/** Stands in for a view that could not be emptied. */
const GONE = new Uint8Array(0);

/** A region with what was cut from it. */
export class SlabRegion {
  readonly memory: Region;
  /** The slabs that it was cut into first; a single one where the region is a one-off. */
  readonly roots: readonly Slab[];
  /** Slabs that are handed out, and those that are lost. */
  out = 0;
  /** Place in the list of regions. */
  at = -1;

  constructor(memory: Region, oneOff: boolean) {
    this.memory = memory;
    this.roots = oneOff ? [new Slab(this, 0, memory.bytes, ONE_OFF, null)] : this.cut();
  }

  /** Largest first, so that each lies at a multiple of its size. What is left under the smallest is not used. */
  private cut(): Slab[] {
    const roots: Slab[] = [];
    let offset = 0;
    for (let order = SLAB_BYTES.length - 1; order >= 0; order--) {
      const bytes = SLAB_BYTES[order]!;
      for (; offset + bytes <= this.memory.bytes; offset += bytes)
        roots.push(new Slab(this, offset, bytes, order, null));
    }
    return roots;
  }

  /**
   * Empties every view that was ever made of the region. False where somebody has transferred one away or has it pinned: he may
   * still see the memory, so it must not be freed.
   */
  detach(): boolean {
    return this.roots.every(isIntact) && this.roots.every(detach);
  }
}

function isIntact(slab: Slab): boolean {
  return slab.intact && (slab.children === null || slab.children.every(isIntact));
}

function detach(slab: Slab): boolean {
  return slab.detach() && (slab.children === null || slab.children.every(detach));
}

/**
 * A slab is free (in the stack of its order), split (its children are what is handed out), handed out or lost, or it sleeps inside a
 * parent that is not split now. Slabs that sleep stay what they are, with their views, for the next time the parent is split.
 */
export class Slab {
  readonly region: SlabRegion;
  readonly offset: number;
  readonly bytes: number;
  readonly order: number;
  readonly parent: Slab | null;
  children: readonly Slab[] | null = null;
  split = false;
  /** Children that are free, while it is split. */
  freeChildren = 0;
  /** Place in the stack that it is in. */
  at = -1;
  /** What buffers look at the memory through, made at the first look. Kept from one buffer to the next, but in debug mode. */
  view: Uint8Array | null = null;

  constructor(region: SlabRegion, offset: number, bytes: number, order: number, parent: Slab | null) {
    this.region = region;
    this.offset = offset;
    this.bytes = bytes;
    this.order = order;
    this.parent = parent;
  }

  /** False where a user has transferred the view's `ArrayBuffer` away: whoever has it now sees this memory for ever. */
  get intact(): boolean {
    return this.view === null || this.view.length > 0;
  }

  get address(): number {
    return this.region.memory.address + this.offset;
  }

  /** The view, made with `bytes` bytes where there is none. Only where the CPU can reach the memory. */
  look(bytes: number): Uint8Array {
    return (this.view ??= new Uint8Array(toArrayBuffer(this.address as Pointer, 0, bytes)));
  }

  /** Empties the view. False where somebody else has it: `intact` then stays false. */
  detach(): boolean {
    if (this.view === null) return true;
    if (this.view.length === 0) return false;
    try {
      (this.view.buffer as ArrayBuffer).transfer(0);
    } catch {
      // Told by the length below.
    }
    // One that is pinned (by a write that still runs, say) is copied, and stays what it was.
    const emptied = this.view.length === 0;
    this.view = emptied ? null : GONE;
    return emptied;
  }

  /** The slabs of the order below. */
  cut(): readonly Slab[] {
    if (this.children !== null) return this.children;
    const order = this.order - 1;
    const bytes = SLAB_BYTES[order]!;
    const children: Slab[] = [];
    for (let at = 0; at < this.bytes; at += bytes)
      children.push(new Slab(this.region, this.offset + at, bytes, order, this));
    return (this.children = children);
  }
}
