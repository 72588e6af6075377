/** A first-in first-out queue over a ring: constant time at both ends, and no slot keeps what was taken. */
export class Fifo<T> {
  length = 0;
  private ring: (T | undefined)[];
  private head = 0;

  constructor() {
    this.ring = new Array<T | undefined>(16).fill(undefined);
  }

  push(item: T): void {
    const { ring } = this;
    if (this.length === ring.length) this.resize(ring.length * 2);
    this.ring[(this.head + this.length) & (this.ring.length - 1)] = item;
    this.length++;
  }

  peek(): T | undefined {
    return this.ring[this.head];
  }

  /** The item `index` places behind the first. */
  at(index: number): T | undefined {
    return index < this.length ? this.ring[(this.head + index) & (this.ring.length - 1)] : undefined;
  }

  shift(): T | undefined {
    if (this.length === 0) return undefined;
    const item = this.ring[this.head];
    this.ring[this.head] = undefined;
    this.head = (this.head + 1) & (this.ring.length - 1);
    this.length--;
    // A burst must not pin its peak size for ever.
    if (this.length === 0 && this.ring.length > 4_096) this.resize(16);
    return item;
  }

  /** Takes everything out, in order. */
  drain(): T[] {
    const items: T[] = [];
    while (this.length > 0) items.push(this.shift() as T);
    return items;
  }

  private resize(size: number): void {
    const ring = new Array<T | undefined>(size).fill(undefined);
    for (let i = 0; i < this.length; i++) ring[i] = this.ring[(this.head + i) & (this.ring.length - 1)];
    this.ring = ring;
    this.head = 0;
  }
}
