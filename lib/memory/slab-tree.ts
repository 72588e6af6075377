/**
 * Which slabs are free: a stack for each order. Taking and putting back one of the right order is a pop and a push; splitting larger
 * slabs and merging smaller ones happens only when the stack is empty.
 */
import type { Slab } from "./slab-region.ts";
import { SLAB_BYTES } from "./slab-sizes.ts";

/** The last one put in comes out first, because its memory is still in the processor's cache. Any can be taken out. */
class SlabStack {
  readonly slabs: Slab[] = [];

  push(slab: Slab): void {
    slab.at = this.slabs.length;
    this.slabs.push(slab);
  }

  pop(): Slab | undefined {
    return this.slabs.pop();
  }

  remove(slab: Slab): void {
    const last = this.slabs.pop()!;
    if (last === slab) return;
    this.slabs[slab.at] = last;
    last.at = slab.at;
  }
}

export class SlabTree {
  private readonly free: readonly SlabStack[] = SLAB_BYTES.map(() => new SlabStack());
  /** Split slabs whose children are all free. */
  private readonly mergeable: readonly SlabStack[] = SLAB_BYTES.map(() => new SlabStack());
  private readonly detached: (slab: Slab) => void;

  /** `detached` is told of free slabs that turn out not to be intact; they are not in the tree any more. */
  constructor(detached: (slab: Slab) => void) {
    this.detached = detached;
  }

  /** A slab of that order, or null where there is none and none can be made by splitting or merging. */
  take(order: number): Slab | null {
    return this.pop(order) ?? this.takeSplit(order) ?? (this.merge(order) ? this.take(order) : null);
  }

  /** Takes in a slab that was handed out, or a new one. */
  put(slab: Slab): void {
    this.free[slab.order]!.push(slab);
    const { parent } = slab;
    if (parent !== null && ++parent.freeChildren === parent.children!.length)
      this.mergeable[parent.order]!.push(parent);
  }

  /** Takes a whole subtree out, of which nothing is handed out. */
  drop(slab: Slab): void {
    if (!slab.split) return this.free[slab.order]!.remove(slab);
    const children = slab.children!;
    if (slab.freeChildren === children.length) this.mergeable[slab.order]!.remove(slab);
    for (const child of children) this.drop(child);
  }

  private pop(order: number): Slab | null {
    const stack = this.free[order]!;
    for (let slab = stack.pop(); slab !== undefined; slab = stack.pop()) {
      this.taken(slab);
      if (slab.intact) return slab;
      this.detached(slab);
    }
    return null;
  }

  /** Tells the parent of a slab that has just left its stack. */
  private taken(slab: Slab): void {
    const { parent } = slab;
    if (parent !== null && parent.freeChildren-- === parent.children!.length)
      this.mergeable[parent.order]!.remove(parent);
  }

  private takeSplit(order: number): Slab | null {
    for (let larger = order + 1; larger < SLAB_BYTES.length; larger++) {
      let slab = this.pop(larger);
      for (let at = larger; slab !== null && at > order; at--) {
        this.splitUp(slab);
        slab = this.pop(at - 1);
      }
      if (slab !== null) return slab;
    }
    return null;
  }

  private splitUp(slab: Slab): void {
    const children = slab.cut();
    slab.split = true;
    slab.freeChildren = 0;
    // Backwards, so that the first one is the next to be taken.
    for (let i = children.length - 1; i >= 0; i--) this.put(children[i]!);
  }

  /** Merges until a slab of that order is free; as little as that takes. False where there is none to be had. */
  private merge(order: number): boolean {
    for (let at = order; at > 0;) {
      const parent = this.mergeable[at]!.pop();
      if (parent === undefined) at--;
      else if (!this.mergeUp(parent)) continue;
      else if (at === order) return true;
      // It may have been the last that its own parent waited for.
      else at++;
    }
    return false;
  }

  /** `parent` has just left its stack. */
  private mergeUp(parent: Slab): boolean {
    const children = parent.children!;
    const whole = parent.freeChildren;
    for (const child of children) {
      if (child.intact) continue;
      this.free[child.order]!.remove(child);
      parent.freeChildren--;
      this.detached(child);
    }
    if (parent.freeChildren < whole) return false;
    for (const child of children) this.free[child.order]!.remove(child);
    parent.split = false;
    this.put(parent);
    return true;
  }
}
