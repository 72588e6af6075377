/** A simple model of the pool beside it: who holds what, who waits, and what must be true however the pool arranges its memory. */
import { expect } from "bun:test";
import { SlabPool, type SlabBuffer } from "../../lib/memory/index.ts";
import { KIB, KindDouble, MIB } from "./kind-double.ts";
import { patternOf } from "./pattern.ts";

export interface Setting {
  readonly poolBytes: number;
  /** What the kind has in all; it fails beyond. */
  readonly memoryBytes: number;
  readonly debug: boolean;
  /** Some users transfer a buffer's `ArrayBuffer` away. */
  readonly thieves: boolean;
}

interface Holding {
  readonly owner: number;
  readonly buffer: SlabBuffer;
  readonly view: Uint8Array;
  readonly region: number;
}

interface Waiting {
  readonly owner: number;
  readonly size: number;
  readonly controller: AbortController;
}

export class PoolModel {
  readonly pool: SlabPool;
  readonly kind = new KindDouble();
  /** Steps that did something, by name. */
  readonly done: Record<string, number> = {};
  private readonly setting: Setting;
  private readonly dice: () => number;
  private readonly limit: number;
  private readonly holdings: Holding[] = [];
  private readonly waiting: Waiting[] = [];
  /** Memory that was transferred away, by what its thief sees. */
  private readonly stolen: { owner: number; bytes: Uint8Array; region: number }[] = [];
  private released: Holding[] = [];
  private owners = 0;
  private closed = false;

  constructor(setting: Setting, dice: () => number) {
    const { poolBytes, memoryBytes, debug } = setting;
    this.setting = setting;
    this.dice = dice;
    this.kind.memoryBytes = memoryBytes;
    this.pool = new SlabPool(this.kind, { poolBytes, debug, onLeak: () => {} });
    this.limit = Math.min(poolBytes === 0 ? Infinity : poolBytes, memoryBytes);
    this.kind.onFree = ({ handle }) => {
      const inUse = [...this.holdings, ...this.stolen].some(({ region }) => region === handle);
      if (inUse) throw new Error("a region was freed under a reader");
    };
  }

  async step(): Promise<void> {
    const roll = this.dice();
    const crowded = this.holdings.length > 60 || this.waiting.length > 20;
    if (roll < (crowded ? 0.2 : 0.35)) this.alloc();
    else if (roll < (crowded ? 0.25 : 0.55)) this.tryAlloc();
    else if (roll < 0.9) this.release();
    else if (roll < 0.95) this.abort();
    else if (roll < 0.98) this.releaseTwice();
    else if (this.setting.thieves && roll < 0.983) this.steal();
    // What was resolved or rejected in this step is told in the next turn.
    await null;
    this.check();
  }

  /** Closes the pool in the middle of everything, and lets go of everything. */
  async close(wait: boolean): Promise<void> {
    this.closed = true;
    const out = this.holdings.length;
    const closing = this.pool.close({ outstanding: wait ? "wait" : "report" });
    const report = wait ? null : await closing;
    await null;
    expect(this.waiting).toHaveLength(0);
    if (report !== null) expect(report.buffers).toBe(out);
    for (const holding of this.holdings) this.verify(holding);
    while (this.holdings.length > 0) this.release();
    if (wait) expect((await closing).buffers).toBe(0);
    this.checkEnd();
    expect(this.kind.closed).toBe(this.stolen.length === 0 ? 1 : 0);
    if (this.stolen.length === 0) expect(this.kind.live.size).toBe(0);
  }

  /** Gives everything back: whoever waits is served, one after the other. */
  async drain(): Promise<void> {
    while (this.holdings.length > 0 || this.waiting.length > 0) {
      expect(this.holdings.length).toBeGreaterThan(0);
      this.release();
      await null;
      this.check();
    }
    this.checkEnd();
    await this.close(false);
  }

  private alloc(): void {
    const size = this.size();
    const owner = this.owners++;
    const controller = new AbortController();
    const waiter: Waiting = { owner, size, controller };
    const wasIdle = this.waiting.length === 0;
    const promise = this.pool.alloc(size, { signal: controller.signal });
    this.waiting.push(waiter);
    promise.then(
      (buffer) => this.served(waiter, buffer),
      (error) => this.refused(waiter, error),
    );
    this.count(wasIdle ? "alloc" : "alloc behind others");
  }

  private tryAlloc(): void {
    const size = this.size();
    const mustWait = this.waiting.length > 0;
    let buffer: SlabBuffer | null;
    try {
      buffer = this.pool.tryAlloc(size);
    } catch (error) {
      // Only where nothing is out and it can never be.
      expect(this.holdings).toHaveLength(0);
      expect(this.limit - this.pinnedBytes()).toBeLessThan(size);
      expect((error as { code: string }).code).toMatch(/^ERR_(ZAP_POOL|TEST_MEMORY)$/);
      return this.count("tryAlloc refused");
    }
    if (buffer === null) {
      if (!mustWait) expect(this.limit - this.pinnedBytes()).toBeLessThan(size);
      return this.count("tryAlloc would wait");
    }
    expect(mustWait).toBe(false);
    this.hold(this.owners++, size, buffer);
    this.count("tryAlloc");
  }

  private release(): void {
    if (this.holdings.length === 0) return;
    const at = Math.floor(this.dice() * this.holdings.length);
    const holding = this.holdings[at]!;
    this.holdings[at] = this.holdings.at(-1)!;
    this.holdings.pop();
    if (holding.view.length > 0) this.verify(holding);
    holding.buffer.release();
    if (this.setting.debug) expect(holding.view.length).toBe(0);
    this.released.push(holding);
    if (this.released.length > 50) this.released = this.released.slice(-10);
    this.count("release");
  }

  private releaseTwice(): void {
    this.released.at(-1)?.buffer.release();
    this.released.at(0)?.buffer.release();
    this.count("release again");
  }

  private abort(): void {
    if (this.waiting.length === 0) return;
    const waiter = this.waiting[Math.floor(this.dice() * this.waiting.length)]!;
    waiter.controller.abort(new Error("enough"));
    this.count("abort");
  }

  private steal(): void {
    const holding = this.holdings.at(-1);
    if (holding === undefined || holding.view.length === 0) return;
    const bytes = new Uint8Array((holding.view.buffer as ArrayBuffer).transfer());
    const { owner, buffer, region } = holding;
    this.stolen.push({ owner, bytes: bytes.subarray(0, buffer.size), region });
    this.count("steal");
  }

  private served(waiter: Waiting, buffer: SlabBuffer): void {
    // Strictly in order: whoever is served has waited longest.
    expect(this.waiting.shift()).toBe(waiter);
    this.hold(waiter.owner, waiter.size, buffer);
  }

  private refused(waiter: Waiting, error: { code: string }): void {
    this.waiting.splice(this.waiting.indexOf(waiter), 1);
    if (error.code === "ERR_ZAP_ABORTED") return expect(waiter.controller.signal.aborted).toBe(true);
    if (error.code === "ERR_ZAP_CLOSED") return expect(this.closed).toBe(true);
    expect(error.code).toMatch(/^ERR_(ZAP_POOL|TEST_MEMORY)$/);
    expect(this.limit - this.pinnedBytes()).toBeLessThan(waiter.size);
    this.count("alloc refused");
  }

  private hold(owner: number, size: number, buffer: SlabBuffer): void {
    const view = buffer.bytes;
    expect(view.length).toBe(size);
    view.set(patternOf(owner, size));
    this.holdings.push({ owner, buffer, view, region: buffer.regionHandle });
  }

  private verify({ owner, view }: { owner: number; view: Uint8Array }): void {
    if (Buffer.compare(view, patternOf(owner, view.length)) === 0) return;
    throw new Error(`another owner's bytes show in the view of owner ${owner}`);
  }

  private check(): void {
    const { pool, kind, holdings } = this;
    const { usedBytes, reservedBytes, buffers, waiting, lostBytes } = pool.stats();
    const asked = holdings.reduce((sum, { buffer }) => sum + buffer.size, 0);
    const sane =
      asked <= usedBytes &&
      usedBytes + lostBytes <= reservedBytes &&
      reservedBytes <= this.limit &&
      reservedBytes === kind.liveBytes &&
      buffers === holdings.length &&
      waiting === this.waiting.length;
    const seen = { asked, holdings: holdings.length, waiters: this.waiting.length };
    if (!sane) throw new Error(`out of step: ${Bun.inspect({ ...pool.stats(), ...seen })}`);
    const [first] = this.waiting;
    // One waits only while something is out, and nobody waits for room that there is.
    if (first !== undefined) {
      expect(holdings.length).toBeGreaterThan(0);
      if (this.limit - this.pinnedBytes() >= first.size)
        throw new Error(`${first.size} bytes could be served`);
    }
    const some = holdings[Math.floor(this.dice() * holdings.length)];
    if (some !== undefined && some.view.length > 0) this.verify(some);
  }

  private checkEnd(): void {
    for (const { owner, bytes } of this.stolen) this.verify({ owner, view: bytes });
    expect(this.pool.stats()).toMatchObject({ buffers: 0, usedBytes: 0, waiting: 0 });
  }

  /** Bytes of regions that something is out of, or was stolen from. */
  private pinnedBytes(): number {
    const pinned = new Set([...this.holdings, ...this.stolen].map(({ region }) => region));
    let bytes = 0;
    for (const region of this.kind.live) if (pinned.has(region.handle)) bytes += region.bytes;
    return bytes;
  }

  /** Any magnitude is as likely as any other. */
  private size(): number {
    const most = Math.min(this.limit, 2 * MIB);
    const size = Math.exp(this.dice() * Math.log(most));
    // The borders between classes, too.
    const border = [256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB][Math.floor(this.dice() * 24)] ?? size;
    return Math.max(1, Math.min(most, Math.round(border)));
  }

  private count(name: string): void {
    this.done[name] = (this.done[name] ?? 0) + 1;
  }
}
