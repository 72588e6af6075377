/**
 * The heap as a kind of memory: page-aligned, and no device knows it.
 *
 * A region is an `ArrayBuffer` that nobody touches but by its address, so it is kept alive here until it is freed: views by address
 * do not keep it, and like the memory of a device it must outlive a pool that was dropped without being closed.
 */
import { ptr } from "bun:ffi";
import { PoolError } from "../errors/index.ts";
import type { MemoryKind, Region } from "./kind.ts";

/** The largest page of the systems that we run on. */
const ALIGNMENT = 64 * 1024;

const alive = new Set<ArrayBuffer>();

/** Opens the heap. A region holds less than 4 GiB, the most that an `ArrayBuffer` has. */
export function heapKind(): MemoryKind {
  return {
    name: "heap",
    reach: { cpu: true, gpu: false, nic: false },
    allocRegion,
    fenceToDevice: () => {},
    fenceToHost: () => {},
    close: () => {},
  };
}

function allocRegion(bytes: number): Region {
  let memory: ArrayBuffer;
  try {
    memory = new ArrayBuffer(bytes + ALIGNMENT - 1);
  } catch (cause) {
    throw new PoolError(`the heap has no ${bytes} bytes in one piece`, { cause });
  }
  alive.add(memory);
  const start = ptr(new Uint8Array(memory)) as number;
  return {
    bytes,
    address: Math.ceil(start / ALIGNMENT) * ALIGNMENT,
    devicePtr: null,
    handle: 0,
    handleOffset: 0,
    free() {
      // The memory is free now, not when the collector comes by; and once only.
      if (alive.delete(memory)) memory.transfer(0);
    },
  };
}
