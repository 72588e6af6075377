/** A buffer as its holder sees it: a slab for a while. */
import { NotAvailableError, PoolError } from "../errors/index.ts";
import type { Buffer, SlabBuffer } from "./buffer.ts";
import type { MemoryKind } from "./kind.ts";
import { OwnedMemory } from "./owned.ts";
import type { Epoch } from "./slab-leaks.ts";
import type { Slab } from "./slab-region.ts";

/** What a buffer needs of its pool. It calls one of the two, once, after its release. */
export interface BufferHome {
  readonly kind: MemoryKind;
  readonly debug: boolean;
  takeBack(buffer: PooledBuffer): void;
  /** Nobody can say whether the device has let go of the memory: nobody may ever get it. */
  lose(buffer: PooledBuffer, error: unknown): void;
}

export class PooledBuffer extends OwnedMemory implements SlabBuffer {
  readonly size: number;
  readonly slab: Slab;
  readonly epoch: Epoch;
  private readonly home: BufferHome;
  private view: Uint8Array | null = null;

  constructor(home: BufferHome, slab: Slab, size: number, epoch: Epoch) {
    super(home.debug);
    this.home = home;
    this.slab = slab;
    this.size = size;
    this.epoch = epoch;
  }

  get kind(): MemoryKind {
    return this.home.kind;
  }

  get bytes(): Uint8Array {
    this.demandHeld("bytes");
    if (this.debug) this.demandCpu();
    return (this.view ??= this.look());
  }

  get address(): number {
    this.demandHeld("address");
    return this.slab.region.memory.address === 0 ? 0 : this.slab.address;
  }

  get devicePtr(): bigint | null {
    this.demandHeld("devicePtr");
    const { devicePtr } = this.slab.region.memory;
    return devicePtr === null ? null : devicePtr + BigInt(this.slab.offset);
  }

  get regionHandle(): number {
    this.demandHeld("regionHandle");
    return this.slab.region.memory.handle;
  }

  get regionOffset(): number {
    this.demandHeld("regionOffset");
    return this.slab.region.memory.handleOffset + this.slab.offset;
  }

  release(): void {
    if (this.released) return;
    if (this.debug) this.demandNoNic();
    this.released = true;
    this.view = null;
    if (this.fence === null && this.fault === null && this.owner !== "gpu") this.home.takeBack(this);
    else this.releaseWhenIdle();
  }

  private releaseWhenIdle(): void {
    // Whoever still looks at it meanwhile is not to see what the device writes.
    if (this.debug) this.dropViews();
    this.whenIdle(
      () => this.home.takeBack(this),
      (error) => this.home.lose(this, error),
    );
  }

  protected dropViews(): void {
    this.view = null;
    this.slab.detach();
  }

  private look(): Uint8Array {
    const { slab, size, kind } = this;
    if (!kind.reach.cpu)
      throw new NotAvailableError(`buffer.bytes: the cpu cannot reach ${kind.name} memory`);
    const whole = slab.look(this.debug ? size : slab.bytes);
    // By its holder, or by somebody who had the memory before and kept a view.
    if (whole.length === 0) throw new PoolError("buffer.bytes: the memory was transferred away");
    return whole.length === size ? whole : new Uint8Array(whole.buffer, 0, size);
  }
}

/** Whether a buffer tells where in which kind of memory it lies: whether it came out of a pool, whole or in part. */
export function isSlabBuffer(buffer: Buffer | Uint8Array): buffer is SlabBuffer {
  return buffer instanceof OwnedMemory;
}
