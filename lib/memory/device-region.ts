/** A piece of a device's memory, or of the host's that a device was told of: `zap_region`, read. */
import { ShimError, type ZapError } from "../errors/index.ts";
import { UMA_REGION } from "../ffi/index.ts";
import type { DeviceMemory } from "./device-kind.ts";
import type { Region } from "./kind.ts";

/** Room for one `zap_region`. */
export function regionMemory(): Uint8Array {
  return new Uint8Array(UMA_REGION.bytes);
}

export class DeviceRegion implements Region {
  readonly bytes: number;
  readonly address: number;
  readonly devicePtr: bigint;
  readonly handle: number;
  readonly handleOffset = 0;
  private readonly memory: DeviceMemory;
  private freed = false;

  /** `filled` by the shim. `bytes` as they were asked for. Throws `ShimError` where an address is beyond what a number holds. */
  constructor(memory: DeviceMemory, handle: number, bytes: number, filled: Uint8Array) {
    const view = new DataView(filled.buffer, filled.byteOffset, filled.byteLength);
    const host = view.getBigUint64(UMA_REGION.at.host, true);
    this.memory = memory;
    this.handle = handle;
    this.bytes = bytes;
    this.address = Number(host);
    this.devicePtr = view.getBigUint64(UMA_REGION.at.device, true);
    // No system maps memory there today; a rounded address would be somebody else's memory.
    const last = host > this.devicePtr ? host : this.devicePtr;
    if (last <= BigInt(Number.MAX_SAFE_INTEGER)) return;
    this.free();
    throw beyond(memory, last);
  }

  /**
   * A new file descriptor of a dma-buf of all of it, from its start on, the caller's to close. A device that has taken it keeps the memory by itself;
   * let it go before `free()` all the same. Throws `ShimError`, `ZAP_E_UNSUPPORTED` where device or memory cannot.
   */
  exportDmaBuf(): number {
    return this.memory.exportRegion(this);
  }

  /**
   * Fills `into` with what lies from `offset` on, after waiting for kernels: also where the CPU has no address for it. Throws `ShimError`
   * where that is not all in the region, or the driver fails.
   */
  copyToHost(offset: number, into: Uint8Array): void {
    this.memory.copyToHost(this.handle, offset, into);
  }

  free(): void {
    if (this.freed) return;
    this.freed = true;
    this.memory.freeRegion(this.handle);
  }
}

function beyond({ shim }: DeviceMemory, host: bigint): ZapError {
  return new ShimError(shim.name, null, `${shim.name}: memory at ${host} is beyond what a number holds`);
}
