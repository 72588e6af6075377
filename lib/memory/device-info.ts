/** What a device says of itself: `zap_uma_device`, read. */
import { readText, UMA_DEVICE, UMA_FLAGS, UMA_MEMORY, type UmaFlag, type UmaMemory } from "../ffi/index.ts";

export interface DeviceInfo {
  /** As its maker names it. */
  readonly name: string;
  /** Which it is, from 0, of how many. */
  readonly index: number;
  readonly count: number;
  /** Bytes of its memory in all. */
  readonly memoryBytes: number;
  /** What it can do. */
  readonly flags: ReadonlySet<UmaFlag>;
  /** The kind of memory to receive into here, and its number in `enum zap_memory`. */
  readonly memory: UmaMemory;
  readonly memoryCode: number;
  /** The driver's version as it gives it (12040 is CUDA 12.4); 0 where there is none. */
  readonly driver: number;
  /** CUDA: 10 times the major compute capability plus the minor; else 0. */
  readonly capability: number;
}

/** Room for one `zap_uma_device`. */
export function deviceMemory(): Uint8Array {
  return new Uint8Array(UMA_DEVICE.bytes);
}

export function readDevice(memory: Uint8Array): DeviceInfo {
  const { at, texts } = UMA_DEVICE;
  const view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  const u32 = (start: number): number => view.getUint32(start, true);
  const bits = u32(at.flags);
  const flags = (Object.keys(UMA_FLAGS) as UmaFlag[]).filter((flag) => (bits & UMA_FLAGS[flag]) !== 0);
  const memoryCode = u32(at.memory);
  const kinds = Object.keys(UMA_MEMORY) as UmaMemory[];
  return {
    name: readText(memory, at.name, texts.name),
    index: u32(at.index),
    count: u32(at.count),
    memoryBytes: Number(view.getBigUint64(at.memory_bytes, true)),
    flags: new Set(flags),
    memory: kinds.find((kind) => UMA_MEMORY[kind] === memoryCode) ?? "managed",
    memoryCode,
    driver: u32(at.driver),
    capability: u32(at.capability),
  };
}
