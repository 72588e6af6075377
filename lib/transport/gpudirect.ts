/**
 * The `gpudirect` transport: messages that an RDMA device writes into page-locked memory, which a GPU reads in place. Where an operator
 * allows it, it runs without any GPU.
 */
import { NotAvailableError, ShimError, ZapError } from "../errors/index.ts";
import { gpudirectVerbs, openShim } from "../ffi/index.ts";
import {
  debugMode,
  deviceLimits,
  lockedKind,
  openDeviceMemory,
  type Buffer,
  type DeviceMemory,
  type MemoryKind,
  type Region,
} from "../memory/index.ts";
import { gpudirectEnvironment, resolveVerbsOptions, VerbsEngine, VerbsWire } from "../wire/index.ts";
import type { Capabilities, CloseReport, Selection, Transport, TransportOptions } from "./contract.ts";
import * as hosts from "./host.ts";
import type { Host } from "./host.ts";
import { GPUDIRECT_CAPS, LIBIBVERBS } from "./probes/gpudirect.ts";
import { umaRuntime } from "./probes/uma.ts";
import { WireTransport } from "./wire-transport.ts";

/**
 * Rejects with `NotAvailableError` where the device or its memory cannot be had or the options ask for what this wire does not have,
 * `ConfigError` or `AddressError` for bad settings. Nothing stays open then.
 */
export async function openGpudirect(
  options: TransportOptions,
  selection: Selection,
  host: Host,
): Promise<Transport> {
  const environment = gpudirectEnvironment(host.env);
  const debug = debugMode(host.env);
  // What cannot be used in the environment is an error whatever the GPU does afterwards.
  const runtime = umaRuntime(host);
  if (runtime !== null) deviceLimits(runtime, host.env);
  const resolved = resolveVerbsOptions(options, environment);
  const libibverbs = hosts.library(host, LIBIBVERBS);
  if (libibverbs === null) throw new NotAvailableError(`gpudirect: ${LIBIBVERBS} is not installed`);
  const gpu = await lock(runtime, environment.regionBytes, host);
  if (!(gpu instanceof ZapError)) return openOver(gpu);
  if (environment.hostMemory) return openOver(null);
  throw notAvailable(gpu);

  async function openOver(device: Gpu | null): Promise<Transport> {
    let engine: VerbsEngine;
    try {
      const verbs = gpudirectVerbs(await openShim("libzap_gpudirect", host.env, host));
      const memory = device === null ? null : { address: device.region.address, bytes: device.region.bytes };
      engine = await VerbsEngine.open(verbs, resolved, { runtime: libibverbs!, memory });
    } catch (cause) {
      if (device !== null) letGo(device);
      throw cause instanceof ShimError ? notAvailable(cause) : cause;
    }
    const wire = await VerbsWire.open(resolved, {
      engine,
      kind: kindOf(engine, device),
      device:
        device === null ? null : { devicePtr: device.region.devicePtr ?? 0n, handle: device.region.handle },
      debug,
    });
    return new GpudirectTransport(wire, selection);
  }
}

interface Gpu {
  readonly memory: DeviceMemory;
  readonly region: Region;
}

/** Page-locked memory from the GPU, or why there is none. */
async function lock(
  runtime: ReturnType<typeof umaRuntime>,
  bytes: number,
  host: Host,
): Promise<Gpu | ZapError> {
  if (runtime === null) return new NotAvailableError("neither CUDA nor HIP is usable here");
  let memory: DeviceMemory | null = null;
  try {
    memory = await openDeviceMemory(runtime, host.env, host);
    return { memory, region: memory.allocLocked(bytes) };
  } catch (error) {
    if (!(error instanceof ZapError)) throw error;
    try {
      memory?.close();
    } catch {
      // It is not needed any more.
    }
    return error;
  }
}

function letGo({ memory, region }: Gpu): void {
  try {
    region.free();
    memory.close();
  } catch {
    // What went wrong first is what counts.
  }
}

function kindOf(engine: VerbsEngine, gpu: Gpu | null): MemoryKind {
  const { address, poolOffset, poolBytes } = engine.info;
  return lockedKind({
    address: address + poolOffset,
    bytes: poolBytes,
    device: gpu === null ? null : { ...gpu, offset: poolOffset },
    // The wire's memory sees to the region itself.
    onClose: () => {},
  });
}

function notAvailable(cause: ZapError): NotAvailableError {
  return new NotAvailableError(`gpudirect: ${cause.message}`, { cause });
}

class GpudirectTransport extends WireTransport<VerbsWire> {
  readonly name = "gpudirect";
  readonly caps: Capabilities;
  readonly poolBytes: number;

  constructor(wire: VerbsWire, selection: Selection) {
    super(wire, selection);
    const { pool } = wire.memory;
    this.poolBytes = pool.poolBytes;
    this.caps = { ...GPUDIRECT_CAPS, gpuResident: pool.kind.reach.gpu };
  }

  allocBuffer(size: number, options?: { signal?: AbortSignal }): Promise<Buffer> {
    return this.wire.memory.pool.alloc(size, options);
  }

  tryAllocBuffer(size: number): Buffer | null {
    return this.wire.memory.pool.tryAlloc(size);
  }

  close(): Promise<CloseReport> {
    return this.wire.close();
  }
}
