/**
 * Hugepages, and page-locked memory, as kinds of memory: an area that somebody else has mapped, with a NIC that receives and sends there, and perhaps a GPU
 * that was told of it and reads it in place. Nothing is asked of the system here; regions are cut from the area.
 */
import { ConfigError, PoolError } from "../errors/index.ts";
import { DeviceMemory } from "./device-kind.ts";
import { DeviceOwnKind } from "./device-own-kind.ts";
import { FreePages, PAGE_BYTES } from "./free-pages.ts";
import type { MemoryKind, Reach, Region } from "./kind.ts";

export interface HugepageArea {
  /** Where the area begins, a multiple of 4 KiB. */
  readonly address: number;
  /** How many bytes it has. What is left behind the last whole 4 KiB is not used. */
  readonly bytes: number;
  /**
   * The GPU that knows it: `region` is what `memory.register` gave, and `offset` where in that region the area begins, in bytes. Null
   * without a GPU. From `hugepageKind` on both are the kind's, which frees the region and closes the memory at its end.
   */
  readonly device: { readonly memory: DeviceMemory; readonly region: Region; readonly offset: number } | null;
  /**
   * Called once when the pool has closed, every region was freed, and the GPU has let go of the area. Never where the GPU's
   * driver fails to let go (`close` throws then): it may still reach the memory, which has to stay.
   */
  readonly onClose: () => void;
}

/**
 * Opens the area as a kind of memory: for the CPU and a NIC, and for the GPU where it has one, whose fences it then uses. Contents are
 * as they were left. Throws `ConfigError` for an area that begins at no page, or lies outside of its registered region.
 */
export function hugepageKind(area: HugepageArea): MemoryKind {
  return new AreaMemory("hugepages", area);
}

/** The same for ordinary pages that were locked into memory, for a NIC to write to. */
export function lockedKind(area: HugepageArea): MemoryKind {
  return new AreaMemory("locked", area);
}

/** The device whose kernels may be told of memory of that kind, by a region's handle; null where there is none. */
export function deviceBehind(kind: MemoryKind): DeviceMemory | null {
  if (kind instanceof DeviceMemory) return kind;
  return kind instanceof AreaMemory || kind instanceof DeviceOwnKind ? kind.deviceMemory : null;
}

class AreaMemory implements MemoryKind {
  readonly name: "hugepages" | "locked";
  readonly reach: Reach;
  readonly deviceMemory: DeviceMemory | null;
  private readonly area: HugepageArea;
  private readonly pages: FreePages;

  constructor(name: "hugepages" | "locked", area: HugepageArea) {
    checkArea(name, area);
    this.name = name;
    this.area = area;
    this.pages = new FreePages(area.bytes);
    this.deviceMemory = area.device?.memory ?? null;
    this.reach = { cpu: true, gpu: area.device !== null, nic: true };
  }

  allocRegion(bytes: number): Region {
    const { pages } = this;
    const at = pages.take(bytes);
    if (at === null) {
      const left = `${pages.largest} of ${this.area.bytes} are free in one piece`;
      throw new PoolError(
        `allocRegion: ${bytes} bytes do not fit into the ${this.name === "locked" ? "page-locked area" : "hugepages"}: ${left}`,
      );
    }
    return new AreaRegion(this.area, at, bytes, () => pages.give(at, bytes));
  }

  fenceToDevice(): void {
    this.deviceMemory?.fenceToDevice();
  }

  fenceToHost(): void {
    this.deviceMemory?.fenceToHost();
  }

  close(): void {
    const { device, onClose } = this.area;
    if (device !== null) letGo(device);
    onClose();
  }
}

/** Unregisters the area and closes the device, also where the former fails; throws what fails first. */
function letGo({ memory, region }: NonNullable<HugepageArea["device"]>): void {
  try {
    region.free();
  } catch (error) {
    try {
      memory.close();
    } catch {
      // Told by the first.
    }
    throw error;
  }
  memory.close();
}

class AreaRegion implements Region {
  readonly bytes: number;
  readonly address: number;
  readonly devicePtr: bigint | null;
  readonly handle: number;
  readonly handleOffset: number;
  private giveBack: (() => void) | null;

  constructor({ address, device }: HugepageArea, at: number, bytes: number, giveBack: () => void) {
    const within = device === null ? 0 : device.region.handleOffset + device.offset + at;
    const base = device?.region.devicePtr ?? null;
    this.bytes = bytes;
    this.address = address + at;
    this.devicePtr = base === null || device === null ? null : base + BigInt(device.offset + at);
    this.handle = device?.region.handle ?? 0;
    this.handleOffset = within;
    this.giveBack = giveBack;
  }

  free(): void {
    const { giveBack } = this;
    this.giveBack = null;
    giveBack?.();
  }
}

function checkArea(name: string, { address, bytes, device }: HugepageArea): void {
  if (!Number.isSafeInteger(address) || address <= 0 || address % PAGE_BYTES !== 0)
    throw new ConfigError(`${name}: the area at ${address} does not begin at a multiple of ${PAGE_BYTES}`);
  if (!Number.isSafeInteger(bytes) || bytes < PAGE_BYTES)
    throw new ConfigError(`${name}: an area of ${bytes} bytes has no page of ${PAGE_BYTES}`);
  if (device === null) return;
  const { region, offset } = device;
  if (region.address + offset === address && offset >= 0 && offset + bytes <= region.bytes) return;
  throw new ConfigError(
    `${name}: ${bytes} bytes at ${address} are not what lies ${offset} bytes into the registered region of ${region.bytes} at ${region.address}`,
  );
}
