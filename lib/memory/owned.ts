/** Memory that one owner at a time may write, and the fences between them: what a slab and a message in a slab have in common. */
import { ClosedError, NotAvailableError, OwnerError } from "../errors/index.ts";
import type { Owner } from "./buffer.ts";
import type { MemoryKind } from "./kind.ts";

export abstract class OwnedMemory {
  abstract readonly kind: MemoryKind;
  owner: Owner = "cpu";
  /** The hand-over or the reading that is going on; it never rejects. */
  fence: Promise<void> | null = null;
  /** Why nobody can say whether the device has let go of the memory. */
  fault: Error | null = null;
  protected released = false;
  /** Readings that are going on. */
  private loans = 0;
  protected readonly debug: boolean;

  constructor(debug: boolean) {
    this.debug = debug;
  }

  /** Empties the views that the CPU took. Called in debug mode alone. */
  protected abstract dropViews(): void;

  handOver(to: Owner): void | Promise<void> {
    const { owner: from } = this;
    this.demandHeld("handOver");
    if (this.fence !== null) throw new OwnerError("buffer.handOver: another hand-over is still going on");
    if (from === to) return;
    const { name } = this.kind;
    if (!this.reaches(to))
      throw new NotAvailableError(`buffer.handOver: the ${to} cannot reach ${name} memory`);
    if (this.debug) this.dropViews();
    const fence = this.fenceTo(to);
    if (!(fence instanceof Promise)) {
      this.owner = to;
      return;
    }
    // In between it belongs to nobody: the CPU has lost it already, and does not have it yet.
    if (from === "cpu") this.owner = to;
    const done = fence.then(
      () => this.settle(to),
      (error) => {
        this.settle(from);
        throw error;
      },
    );
    this.fence = done.catch(() => {});
    return done;
  }

  /**
   * The device reads the memory until `returned` is called; a release takes effect only then. Several may read at once. `idle` resolves
   * after that, never rejects, and may be shared by many buffers.
   */
  lend(idle: Promise<void>): void {
    this.demandHeld("lend");
    if (this.fence !== null && this.loans === 0)
      throw new OwnerError("buffer: a hand-over is still going on");
    this.loans++;
    this.fence = this.fence === null ? idle : Promise.all([this.fence, idle]).then(() => {});
  }

  /** Ends one loan. With a `fault` nobody knows whether the device still reads: then nobody gets the memory again. */
  returned(fault: Error | null): void {
    this.fault ??= fault;
    if (--this.loans === 0) this.fence = null;
  }

  spoil(error: Error): void {
    this.fault ??= error;
  }

  /** Calls `done` when the device has let go of the memory, `failed` where nobody can say so. */
  protected whenIdle(done: () => void, failed: (error: unknown) => void): void {
    if (this.fence !== null) {
      void this.fence.then(() => this.whenIdle(done, failed));
      return;
    }
    if (this.fault !== null) return failed(this.fault);
    if (this.owner !== "gpu") return done();
    try {
      const fence = this.kind.fenceToHost();
      if (fence instanceof Promise) return void fence.then(done, failed);
    } catch (error) {
      return failed(error);
    }
    done();
  }

  /** Whether `to` can have it at all. */
  protected reaches(to: Owner): boolean {
    return this.kind.reach[to];
  }

  protected demandHeld(what: string): void {
    if (this.released) throw new ClosedError(`buffer.${what}: the buffer was released`);
  }

  protected demandCpu(): void {
    if (this.owner === "cpu") return;
    throw new OwnerError(`buffer.bytes: the ${this.owner} owns it; hand it over to the cpu first`);
  }

  protected demandNoNic(): void {
    if (!this.debug || this.owner !== "nic") return;
    throw new OwnerError("buffer.release: the nic owns it; hand it over to the cpu first");
  }

  private settle(owner: Owner): void {
    this.owner = owner;
    this.fence = null;
  }

  private fenceTo(to: Owner): void | Promise<void> {
    if (this.owner === "gpu") return this.kind.fenceToHost();
    // What a NIC has written is there when it says so, and it reads what the CPU wrote before it was told to.
    if (to === "gpu") return this.kind.fenceToDevice();
  }
}
