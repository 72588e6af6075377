/** A kind of memory that counts, and that fails when it is told to. Its memory is the heap's. */
import { ZapError } from "../../lib/errors/index.ts";
import {
  heapKind,
  type MemoryKind,
  type Reach,
  type Region,
  type SlabBuffer,
  type SlabPool,
} from "../../lib/memory/index.ts";

export const KIB = 1024;
export const MIB = 1024 * KIB;

export class OutOfMemory extends ZapError {
  constructor(bytes: number) {
    super("ERR_TEST_MEMORY", `the device has no ${bytes} bytes`);
  }
}

/** What a device's addresses are ahead of the CPU's. */
export const DEVICE_OFFSET = 0x7000_0000_0000n;

export class KindDouble implements MemoryKind {
  readonly name = "cuda";
  reach: Reach = { cpu: true, gpu: true, nic: true };
  /** Regions asked for, and those of them that failed. */
  asked = 0;
  failed = 0;
  closed = 0;
  readonly live = new Set<Region>();
  /** Most bytes that it gave at one time. */
  peakBytes = 0;
  /** Bytes that it has in all. */
  memoryBytes = Infinity;
  /** Which of the regions fail, counted from 1. */
  failing: (nth: number) => boolean = () => false;
  /** Called as a region is given back. */
  onFree: (region: Region) => void = () => {};
  freeError: Error | null = null;
  closeError: Error | null = null;
  readonly fences: string[] = [];
  /** What the next fences do; null for at once. */
  fence: (() => void | Promise<void>) | null = null;
  private readonly heap = heapKind();

  get liveBytes(): number {
    return [...this.live].reduce((sum, { bytes }) => sum + bytes, 0);
  }

  allocRegion(bytes: number): Region {
    this.asked++;
    if (this.closed > 0) throw new Error("a region was asked of a kind that is closed");
    if (this.failing(this.asked) || this.liveBytes + bytes > this.memoryBytes) {
      this.failed++;
      throw new OutOfMemory(bytes);
    }
    const memory = this.heap.allocRegion(bytes);
    const region: Region = {
      bytes,
      address: this.reach.cpu ? memory.address : 0,
      devicePtr: BigInt(memory.address) + DEVICE_OFFSET,
      handle: this.asked,
      handleOffset: 0,
      free: () => {
        if (!this.live.has(region)) throw new Error("a region was freed twice");
        if (this.freeError !== null) throw this.freeError;
        this.onFree(region);
        this.live.delete(region);
        memory.free();
      },
    };
    this.live.add(region);
    this.peakBytes = Math.max(this.peakBytes, this.liveBytes);
    return region;
  }

  fenceToDevice(): void | Promise<void> {
    this.fences.push("to device");
    return this.fence?.();
  }

  fenceToHost(): void | Promise<void> {
    this.fences.push("to host");
    return this.fence?.();
  }

  close(): void {
    this.closed++;
    if (this.live.size > 0) throw new Error("the kind was closed with regions out");
    if (this.closeError !== null) throw this.closeError;
  }
}

/** As many buffers as there are. */
export function drain(pool: SlabPool, size: number): SlabBuffer[] {
  const all: SlabBuffer[] = [];
  for (let one = pool.tryAlloc(size); one !== null; one = pool.tryAlloc(size)) all.push(one);
  return all;
}

/** A promise that the test settles. */
export function gate(): { promise: Promise<void>; open: () => void; fail: (error: Error) => void } {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  return { promise, open: resolve, fail: reject };
}

/** Whether a promise is still pending after everything that is due has run. */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const note = (): void => void (settled = true);
  promise.then(note, note);
  await Bun.sleep(0);
  return !settled;
}
