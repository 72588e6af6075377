/**
 * The native end of a ring, for tests that play that side: plain memory laid out as `zap_ring.h` says. It uses whole 64-bit counts
 * everywhere, unlike what it tests.
 */
import { RING, RING_MAGIC, RING_VERSION } from "../../lib/ffi/index.ts";
import type { MemoryKind } from "../../lib/memory/index.ts";

export const PAGE = 4096;

export interface Sent {
  readonly flow: number;
  readonly token: number;
  readonly address: number;
  /** As they were when it was taken. */
  readonly bytes: Uint8Array;
}

/** One ring, with the native end that a test plays. */
export class NativeRing {
  readonly offset: number;
  private readonly view: DataView;
  private readonly slots: number;
  private readonly entryBytes: number;

  constructor(memory: ArrayBuffer, offset: number, slots: number, entryBytes: number, startAt: bigint) {
    this.offset = offset;
    this.slots = slots;
    this.entryBytes = entryBytes;
    this.view = new DataView(memory, offset, RING.bytes + slots * entryBytes);
    const { at } = RING;
    this.view.setUint32(at.magic, RING_MAGIC, true);
    this.view.setUint32(at.version, RING_VERSION, true);
    this.view.setUint32(at.slots, slots, true);
    this.view.setUint32(at.entry_bytes, entryBytes, true);
    this.head = startAt;
    this.tail = startAt;
  }

  get head(): bigint {
    return this.view.getBigUint64(RING.at.head, true);
  }
  set head(count: bigint) {
    this.view.setBigUint64(RING.at.head, count, true);
  }
  get tail(): bigint {
    return this.view.getBigUint64(RING.at.tail, true);
  }
  set tail(count: bigint) {
    this.view.setBigUint64(RING.at.tail, count, true);
  }
  get armed(): boolean {
    return this.view.getUint32(RING.at.armed, true) === 1;
  }
  arm(): void {
    this.view.setUint32(RING.at.armed, 1, true);
  }
  disarm(): void {
    this.view.setUint32(RING.at.armed, 0, true);
  }

  entry(count: bigint): DataView {
    const at = RING.bytes + Number(count % BigInt(this.slots)) * this.entryBytes;
    return new DataView(this.view.buffer, this.view.byteOffset + at, this.entryBytes);
  }

  produce(write: (entry: DataView) => void): void {
    if (this.tail - this.head >= BigInt(this.slots)) throw new Error("the ring is full");
    write(this.entry(this.tail));
    this.tail += 1n;
  }

  consume<T>(read: (entry: DataView) => T): T[] {
    const found: T[] = [];
    for (; this.head < this.tail; this.head += 1n) found.push(read(this.entry(this.head)));
    return found;
  }
}

/** Lets microtasks and a few turns of the loop go by. */
export async function turns(): Promise<void> {
  for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** Memory that somebody else has mapped. */
export function areaKind(address: number, bytes: number, state: { closed: boolean }): MemoryKind {
  let used = 0;
  return {
    name: "heap",
    reach: { cpu: true, gpu: false, nic: true },
    allocRegion(size) {
      if (used + size > bytes) throw new Error("the area is full");
      const at = address + used;
      used += Math.ceil(size / PAGE) * PAGE;
      return { bytes: size, address: at, devicePtr: null, handle: 0, handleOffset: 0, free: () => {} };
    },
    fenceToDevice: () => {},
    fenceToHost: () => {},
    close: () => void (state.closed = true),
  };
}
