/**
 * Memory for `gpudirect`: what a GPU gives for each way of registering it with a network card, which ways are tried, and what to say where none
 * of them does. Managed memory is none of them: CUDA has it registered by nobody.
 */
import { closeSync } from "node:fs";
import { NotAvailableError, ZapError } from "../errors/index.ts";
import {
  DeviceOwnKind,
  lockedKind,
  type DeviceMemory,
  type DeviceRegion,
  type MemoryKind,
  type Region,
} from "../memory/index.ts";
import type { MethodChoice, OwnMemory, ReceivedOnDevice } from "../wire/index.ts";

/** Best first: received bytes in the GPU's own memory before those that it reads across the bus. */
const METHODS = ["dma-buf", "peermem", "page-locked"] as const;
export type GpuMethod = (typeof METHODS)[number];

export function methodsOf(choice: MethodChoice): readonly GpuMethod[] {
  return choice === "auto" ? METHODS : [choice];
}

/** What a node of one method is opened over. All of it belongs to `memory`, which frees at its closing what is left. */
export interface GpuMemory {
  readonly method: GpuMethod;
  readonly memory: DeviceMemory;
  /** Page-locked: the node's region. */
  readonly region: Region;
  /** The GPU's own, for received messages; null where they lie in the region. */
  readonly received: DeviceRegion | null;
  readonly own: OwnMemory | null;
}

export interface GpuSizes {
  /** Of all the node's memory, and those of it that messages are received into: multiples of 64 KiB. */
  readonly total: number;
  readonly received: number;
}

/** Allocates for one method. Throws `ShimError`; then nothing is left. The descriptor in `own` has to be closed by `closeDmaBuf`. */
export function allocate(method: GpuMethod, memory: DeviceMemory, sizes: GpuSizes): GpuMemory {
  if (method === "page-locked") {
    const region = memory.allocLocked(sizes.total);
    return { method, memory, region, received: null, own: null };
  }
  const received = memory.allocDevice(sizes.received);
  let dmaBuf = -1;
  try {
    if (method === "dma-buf") dmaBuf = received.exportDmaBuf();
    const region = memory.allocLocked(sizes.total - sizes.received);
    const own = { address: Number(received.devicePtr), bytes: received.bytes, method, dmaBuf } as const;
    return { method, memory, region, received, own };
  } catch (error) {
    if (dmaBuf >= 0) closeSync(dmaBuf);
    freeQuietly(received);
    throw error;
  }
}

/** The device that registered it keeps the memory by itself. */
export function closeDmaBuf({ own }: GpuMemory): void {
  if (own !== null && own.dmaBuf >= 0) closeSync(own.dmaBuf);
}

/** Frees what was allocated, and leaves the device open. Nothing of it may be registered any more. */
export function letGo({ region, received }: GpuMemory): void {
  freeQuietly(region);
  if (received !== null) freeQuietly(received);
}

export function closeQuietly(memory: DeviceMemory): void {
  try {
    memory.close();
  } catch {
    // It is not needed any more, and what went wrong first is what counts.
  }
}

function freeQuietly(region: Region): void {
  try {
    region.free();
  } catch {
    // What went wrong first is what counts.
  }
}

/** The kind of the pool: a part of the node's page-locked region. Its end is that of all the GPU's memory, and of the GPU here. */
export function kindOver(
  { address, poolOffset, poolBytes }: { address: number; poolOffset: number; poolBytes: number },
  gpu: GpuMemory | null,
): MemoryKind {
  const kind = lockedKind({
    address: address + poolOffset,
    bytes: poolBytes,
    device: gpu === null ? null : { memory: gpu.memory, region: gpu.region, offset: poolOffset },
    // The wire's memory sees to the region itself.
    onClose: () => {},
  });
  const received = gpu?.received ?? null;
  if (received === null) return kind;
  const close = kind.close.bind(kind);
  kind.close = () => {
    try {
      received.free();
    } finally {
      void close();
    }
  };
  return kind;
}

/** What the wire has to know of memory that the CPU cannot reach. */
export function receivedOn({ memory, received }: GpuMemory): ReceivedOnDevice | null {
  if (received === null) return null;
  return {
    kind: new DeviceOwnKind(memory),
    address: Number(received.devicePtr),
    handle: received.handle,
    copy: (offset, into) => received.copyToHost(offset, into),
  };
}

export interface Attempt {
  readonly method: GpuMethod;
  readonly error: ZapError;
}

/** Every way that was tried, and why it failed; what failed for the same reason is told once. */
export function noMethod(choice: MethodChoice, attempts: readonly Attempt[]): NotAvailableError {
  const reasons = new Map<string, GpuMethod[]>();
  for (const { method, error } of attempts)
    reasons.set(error.message, [...(reasons.get(error.message) ?? []), method]);
  const told = [...reasons].map(([reason, methods]) => `${methods.join(", ")}: ${reason}`).join("; ");
  const forced = choice === "auto" ? "" : " (the only one that ZAP_GPUDIRECT_METHOD allows)";
  const cause = attempts.at(-1)?.error;
  const text = `gpudirect: no memory of a GPU could be registered with a network card by ${told}${forced}`;
  return new NotAvailableError(text, cause === undefined ? undefined : { cause });
}
