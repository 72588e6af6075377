/**
 * The memory of a device as a kind of memory: CUDA, HIP and Metal, each through its shim.
 *
 * Every call waits for the device's own thread, at most the time that was given at opening; a driver that has not come back by
 * then costs this device and not the caller: each later call fails at once.
 */
import { ClosedError, ConfigError } from "../errors/index.ts";
import {
  cText,
  openShim,
  platformHere,
  SHIM_STATUS,
  UMA_MEMORY,
  UMA_SCHEMES,
  type Platform,
  type Shim,
  type UmaShimName,
} from "../ffi/index.ts";
import { cudaDeviceIndex, deviceMillis } from "./device-settings.ts";
import { deviceMemory, readDevice, type DeviceInfo } from "./device-info.ts";
import { DeviceRegion, regionMemory } from "./device-region.ts";
import type { KindName, MemoryKind, Reach, Region } from "./kind.ts";
import { packSpans, packVerifySpans, packVersions, type HeaderSpan, type VerifySpans } from "./spans.ts";

type Env = Readonly<Record<string, string | undefined>>;
export type DeviceKindName = Exclude<KindName, "heap" | "hugepages" | "locked">;

/** A device, and what it takes to open it. */
export interface DeviceOptions {
  readonly kind: DeviceKindName;
  /** Absolute path of the vendor's library: libcuda.so.1, libamdhip64.so.N; for Metal the framework's binary. */
  readonly runtime: string;
  /** For Metal the absolute path of libobjc; else empty. */
  readonly support?: string;
  /** Which of the devices that this process can see, from 0. Default: `ZAP_CUDA_DEVICE` for CUDA, else 0. */
  readonly index?: number;
  /** The most that any call into the vendor's library may take, milliseconds. Default: `ZAP_DEVICE_MILLIS`. */
  readonly timeoutMillis?: number;
}

const SHIM_NAMES = {
  cuda: "libzap_uma_cuda",
  hip: "libzap_uma_hip",
  metal: "libzap_uma_metal",
} as const satisfies Record<DeviceKindName, UmaShimName>;

/** The library that each kind comes through. */
export function shimOf(kind: DeviceKindName): UmaShimName {
  return SHIM_NAMES[kind];
}

/**
 * Which device and how long it may take, by options and environment. Throws `ConfigError` for values that cannot be used, in the
 * environment also where an option overrides them.
 */
export function deviceLimits(
  { kind, index, timeoutMillis }: DeviceOptions,
  env: Env = process.env,
): { readonly index: number; readonly timeoutMillis: number } {
  const configured = { index: cudaDeviceIndex(env), timeoutMillis: deviceMillis(env) };
  const limits = {
    index: index ?? (kind === "cuda" ? configured.index : 0),
    timeoutMillis: timeoutMillis ?? configured.timeoutMillis,
  };
  for (const [name, value, least] of [
    ["index", limits.index, 0],
    ["timeoutMillis", limits.timeoutMillis, 1],
  ] as const) {
    if (Number.isInteger(value) && value >= least && value < 2 ** 31) continue;
    throw new ConfigError(`${name}: a whole number from ${least} on is needed, not ${value}`);
  }
  return limits;
}

/**
 * Opens a device. `env` and `platform` say where the shim is looked for, as in `openShim`. Rejects with `ShimError` where the shim or
 * the device fails, `ConfigError` as `deviceLimits`.
 */
export async function openDeviceMemory(
  options: DeviceOptions,
  env: Env = process.env,
  platform: Platform = platformHere(),
): Promise<DeviceMemory> {
  const { kind, runtime, support = "" } = options;
  const { index, timeoutMillis } = deviceLimits(options, env);
  const shim = await openShim(shimOf(kind), env, platform);
  const info = deviceMemory();
  const status = shim.call.open(cText(runtime), cText(support), index, timeoutMillis, info);
  const handle = shim.check(status, `opening device ${index}`);
  return new DeviceMemory(kind, shim, handle, readDevice(info), timeoutMillis);
}

/** What a driver that did not come back was to write to. Never collected. */
const stranded: Uint8Array[] = [];

export class DeviceMemory implements MemoryKind {
  readonly name: DeviceKindName;
  readonly reach: Reach;
  /** What the device says of itself. */
  readonly device: DeviceInfo;
  /** The library behind it, for those who need more of it (a poller above all). */
  readonly shim: Shim<UmaShimName>;
  /** The most that any call here takes. */
  readonly timeoutMillis: number;
  private readonly handle: number;
  private closed = false;

  constructor(
    name: DeviceKindName,
    shim: Shim<UmaShimName>,
    handle: number,
    device: DeviceInfo,
    timeoutMillis: number,
  ) {
    this.name = name;
    this.shim = shim;
    this.handle = handle;
    this.device = device;
    this.timeoutMillis = timeoutMillis;
    // A NIC can be given page-locked host memory; managed memory and Metal's buffers it cannot.
    this.reach = { cpu: device.memory !== "device", gpu: true, nic: device.memory === "host" };
  }

  /** A region of the kind of memory that suits this device best, `device.memory`. */
  allocRegion(bytes: number): Region {
    this.assertOpen("allocRegion");
    const { call } = this.shim;
    const memory = regionMemory();
    const status = call.region_alloc(this.handle, this.device.memoryCode, bytes, memory);
    return new DeviceRegion(this, this.check(status, `allocating ${bytes} bytes`), bytes, memory);
  }

  /** A region of page-locked host memory, which the device reads in place and a NIC can be given, whatever suits the device best. */
  allocLocked(bytes: number): Region {
    this.assertOpen("allocLocked");
    const memory = regionMemory();
    const status = this.shim.call.region_alloc(this.handle, UMA_MEMORY.host, bytes, memory);
    return new DeviceRegion(this, this.check(status, `allocating ${bytes} page-locked bytes`), bytes, memory);
  }

  /**
   * A region of the device's own memory: no address for the CPU (`address` is 0), which sees of it what `copyToHost` copies. A NIC can be given it,
   * by a dma-buf or by the driver's peer memory. Throws `ShimError`, for a Metal device always.
   */
  allocDevice(bytes: number): DeviceRegion {
    this.assertOpen("allocDevice");
    const memory = regionMemory();
    const status = this.shim.call.region_alloc(this.handle, UMA_MEMORY.device, bytes, memory);
    return new DeviceRegion(
      this,
      this.check(status, `allocating ${bytes} bytes of the device's own`),
      bytes,
      memory,
    );
  }

  /**
   * Lets the device read and write memory that is somebody else's, in place: `bytes` from `address` on, both multiples of the host's
   * page. The region's `free()` ends that and does not free the memory, which has to stay mapped until `free` or `close` has
   * returned. Where one of them throws, or this with `ZAP_E_TIMEOUT`, it has to stay for as long as the process lives: the device may
   * still reach it.
   *
   * Throws `ShimError`: `ZAP_E_INVALID` where it is not whole pages, `ZAP_E_UNSUPPORTED` where the device cannot (no Metal device can),
   * else with what the driver says, for memory that is registered already or may not be locked. `ConfigError` for what is no address or
   * size at all.
   */
  register(address: number, bytes: number): Region {
    this.assertOpen("register");
    for (const number of [address, bytes])
      if (!Number.isSafeInteger(number) || number < 0)
        throw new ConfigError(`register: an address and a number of bytes are needed, not ${number}`);
    const memory = regionMemory();
    const status = this.shim.call.region_register(this.handle, address, bytes, memory);
    return new DeviceRegion(this, this.check(status, `registering ${bytes} bytes`), bytes, memory);
  }

  freeRegion(handle: number): void {
    this.assertOpen("region.free");
    this.check(this.shim.call.region_free(this.handle, handle), "freeing a region");
  }

  /** A new dma-buf file descriptor of a region, the caller's to close. Throws where device or memory cannot. */
  exportRegion(region: Region): number {
    this.assertOpen("exportRegion");
    return this.check(this.shim.call.region_export(this.handle, region.handle), "exporting a region");
  }

  /** Copies `into.length` bytes from `offset` of a region on. See `DeviceRegion.copyToHost`. */
  copyToHost(region: number, offset: number, into: Uint8Array): void {
    this.assertOpen("copyToHost");
    if (into.length === 0) return;
    const status = this.shim.call.copy_to_host(this.handle, region, offset, into, into.length);
    // The driver may write there at any later time.
    if (status === SHIM_STATUS.ZAP_E_TIMEOUT) stranded.push(into);
    this.check(status, `copying ${into.length} bytes to the host`);
  }

  fenceToDevice(): void {
    this.assertOpen("fenceToDevice");
    this.check(this.shim.call.fence_to_device(this.handle), "handing memory to the device");
  }

  fenceToHost(): void {
    this.assertOpen("fenceToHost");
    this.check(this.shim.call.fence_to_host(this.handle), "taking memory back from the device");
  }

  /**
   * Starts to check ZAP headers on the device, one at the start of each span; at most 65,536. `versions`: up to four message
   * versions to accept. Returns the number of the job; its regions must stay until it has ended.
   */
  checkBegin(spans: readonly HeaderSpan[], versions: readonly number[]): number {
    this.assertOpen("checkBegin");
    const status = this.shim.call.check_begin(
      this.handle,
      packSpans(spans),
      spans.length,
      packVersions(versions),
    );
    return this.check(status, "starting to check headers");
  }

  /** False while the job runs; then it fills one verdict for each span, and the job is gone. Also gone after a failure. */
  checkPoll(job: number, verdicts: Uint8Array): boolean {
    this.assertOpen("checkPoll");
    const status = this.shim.call.check_poll(this.handle, job, verdicts, verdicts.length);
    if (status === SHIM_STATUS.ZAP_E_AGAIN) return false;
    this.check(status, "checking headers");
    return true;
  }

  /** The same check by the CPU, at once. */
  checkHost(spans: readonly HeaderSpan[], versions: readonly number[], verdicts: Uint8Array): void {
    this.assertOpen("checkHost");
    if (verdicts.length < spans.length) throw new ConfigError("verdicts: one byte for each span is needed");
    const { call } = this.shim;
    const packed = packVersions(versions);
    const status = call.check_host(this.handle, packSpans(spans), spans.length, packed, verdicts);
    this.check(status, "checking headers");
  }

  /**
   * Makes the kernel that verifies signatures of `scheme` ready. False while the driver compiles it, which may take seconds: other calls here
   * wait for that, this one does not. Throws `ShimError` where the device has no such kernel, or the driver fails; the next call tries again.
   */
  verifyLoad(scheme: keyof typeof UMA_SCHEMES): boolean {
    this.assertOpen("verifyLoad");
    const status = this.shim.call.verify_load(this.handle, UMA_SCHEMES[scheme]);
    if (status === SHIM_STATUS.ZAP_E_AGAIN) return false;
    this.check(status, `loading the kernel for ${scheme}`);
    return true;
  }

  /**
   * Starts to verify the signatures of a packed batch where they lie; at most 1,048,576. Returns the number of the job; until it has ended its
   * regions must stay, and nobody may write there.
   */
  verifyBegin(scheme: keyof typeof UMA_SCHEMES, batch: VerifySpans): number {
    this.assertOpen("verifyBegin");
    const [bytes, table, codes] = packVerifySpans(batch);
    const { call } = this.shim;
    const status = call.verify_begin(this.handle, UMA_SCHEMES[scheme], bytes, table, batch.count, codes);
    return this.check(status, `starting to verify ${scheme}`);
  }

  /** False while the job runs; then the codes are there, and the job is gone. Also gone after a failure. */
  verifyPoll(job: number): boolean {
    this.assertOpen("verifyPoll");
    const status = this.shim.call.verify_poll(this.handle, job);
    if (status === SHIM_STATUS.ZAP_E_AGAIN) return false;
    this.check(status, "verifying signatures");
    return true;
  }

  /** The same by the CPU, at once: the kernel's source, compiled for the host. */
  verifyHost(scheme: keyof typeof UMA_SCHEMES, batch: VerifySpans): void {
    this.assertOpen("verifyHost");
    const [bytes, table, codes] = packVerifySpans(batch);
    const { call } = this.shim;
    const status = call.verify_host(this.handle, UMA_SCHEMES[scheme], bytes, table, batch.count, codes);
    this.check(status, `verifying ${scheme}`);
  }

  /**
   * Waits for kernels, frees what is left, lets go of the device. A second call does nothing. Throws where the driver fails or does not
   * come back; the device is closed all the same.
   */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.check(this.shim.call.close(this.handle), "closing the device");
  }

  private check(status: number, what: string): number {
    return this.shim.check(status, what);
  }

  private assertOpen(what: string): void {
    if (this.closed) throw new ClosedError(`${what}: the ${this.name} memory was closed`);
  }
}
