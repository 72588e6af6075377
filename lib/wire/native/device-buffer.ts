/**
 * A received message in a GPU's own memory as a managed buffer. The GPU works on it where the NIC wrote it; the CPU gets a copy. What the CPU asks
 * the GPU for from now on, a kernel or a copy, sees all of the message; a kernel that runs already may not.
 *
 * It starts out as the CPU's like any other: until it is handed over to the GPU no kernel may use it, and one that is released while the GPU has it goes
 * back after a fence.
 */
import { OwnedMemory, type MemoryKind, type Owner, type SlabBuffer } from "../../memory/index.ts";
import type { NodeMemory, ReceivedOnDevice } from "./memory.ts";

/** Whose the range is. */
export interface DeviceBufferHome {
  readonly memory: NodeMemory;
  /** The envelope ends with the buffer. */
  ended(): void;
  /** The range is nobody's any more; `fault` where it must go to nobody, as the device may still use it. */
  letGo(fault: Error | null): void;
}

export class DeviceBuffer extends OwnedMemory implements SlabBuffer {
  readonly kind: MemoryKind;
  readonly size: number;
  /** The CPU finds it nowhere. */
  readonly address = 0;
  private readonly received: ReceivedOnDevice;
  private readonly home: DeviceBufferHome;
  private readonly start: number;
  private copy: Uint8Array | null = null;

  /** `size` bytes from `start` of the memory on. */
  constructor(received: ReceivedOnDevice, start: number, size: number, home: DeviceBufferHome) {
    super(home.memory.debug);
    this.kind = received.kind;
    this.received = received;
    this.start = start;
    this.size = size;
    this.home = home;
  }

  get bytes(): Uint8Array {
    this.demandHeld("bytes");
    if (this.debug) this.demandCpu();
    // Also where somebody has transferred the last one away.
    if (this.copy === null || this.copy.length !== this.size)
      this.copy = this.home.memory.copyReceived(this.start, this.size);
    return this.copy;
  }

  get devicePtr(): bigint {
    this.demandHeld("devicePtr");
    return BigInt(this.received.address + this.start);
  }

  get regionHandle(): number {
    this.demandHeld("regionHandle");
    return this.received.handle;
  }

  get regionOffset(): number {
    this.demandHeld("regionOffset");
    return this.start;
  }

  override handOver(to: Owner): void | Promise<void> {
    const from = this.owner;
    const done = super.handOver(to);
    // What the next owner writes is in none that was made before.
    if (from !== to) this.copy = null;
    return done;
  }

  release(): void {
    if (this.released) return;
    this.demandNoNic();
    this.dropViews();
    this.released = true;
    this.home.ended();
    this.whenIdle(
      () => this.home.letGo(null),
      (error) => this.home.letGo(error instanceof Error ? error : new Error(String(error))),
    );
  }

  /** The CPU always gets its copy. */
  protected override reaches(to: Owner): boolean {
    return to === "cpu" || super.reaches(to);
  }

  /** The copy is the heap's: whoever kept it sees what it was, but for debug mode. */
  protected dropViews(): void {
    if (this.debug && this.copy !== null && this.copy.length > 0)
      (this.copy.buffer as ArrayBuffer).transfer(0);
    this.copy = null;
  }
}
