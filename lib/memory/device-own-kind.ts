/** A device's own memory as a kind: the GPU reads it in place and a NIC writes to it, and the CPU has no address for it. */
import type { DeviceMemory } from "./device-kind.ts";
import type { KindName, MemoryKind, Reach, Region } from "./kind.ts";

/** Over a device that is open, and that its owner closes: `close` here does nothing. */
export class DeviceOwnKind implements MemoryKind {
  readonly name: KindName;
  readonly reach: Reach = { cpu: false, gpu: true, nic: true };
  readonly deviceMemory: DeviceMemory;

  constructor(memory: DeviceMemory) {
    this.name = memory.name;
    this.deviceMemory = memory;
  }

  allocRegion(bytes: number): Region {
    return this.deviceMemory.allocDevice(bytes);
  }

  fenceToDevice(): void {
    this.deviceMemory.fenceToDevice();
  }

  fenceToHost(): void {
    this.deviceMemory.fenceToHost();
  }

  close(): void {}
}
