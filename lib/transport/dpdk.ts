/**
 * The `dpdk` transport: reliable messages over datagrams on a network device that this process drives itself, received into hugepages
 * that a GPU reads in place where there is one.
 */
import { NotAvailableError, ShimError, ZapError } from "../errors/index.ts";
import { dpdkVerbs, openShim } from "../ffi/index.ts";
import {
  debugMode,
  deviceLimits,
  hugepageKind,
  openDeviceMemory,
  type Buffer,
  type DeviceMemory,
  type MemoryKind,
  type Region,
} from "../memory/index.ts";
import { DpdkWire, dpdkEnvironment, Engine, resolveDpdkOptions } from "../wire/index.ts";
import type { Capabilities, CloseReport, Selection, Transport, TransportOptions } from "./contract.ts";
import * as hosts from "./host.ts";
import type { Host } from "./host.ts";
import { DPDK_CAPS, dpdkDevice } from "./probes/dpdk.ts";
import { umaRuntime } from "./probes/uma.ts";
import { WireTransport } from "./wire-transport.ts";

/**
 * Rejects with `NotAvailableError` where the device cannot be had or the options ask for what this wire does not have, `ConfigError` or
 * `AddressError` for bad settings. Nothing stays open then, but DPDK's own environment.
 */
export async function openDpdk(
  options: TransportOptions,
  selection: Selection,
  host: Host,
): Promise<Transport> {
  const environment = dpdkEnvironment(host.env);
  const debug = debugMode(host.env);
  // What cannot be used in the environment is an error whatever the GPU does afterwards.
  const runtime = umaRuntime(host);
  if (runtime !== null) deviceLimits(runtime, host.env);
  const device = dpdkDevice(host);
  if (device === null) throw new NotAvailableError("dpdk: there is no network device that it can drive");
  const resolved = resolveDpdkOptions(options, environment, {
    device,
    freeHugepageBytes: freeHugepages(host),
  });
  const engine = await open(resolved);
  const gpu = runtime === null ? null : await register(engine, runtime, host);
  const wire = await DpdkWire.open(resolved, {
    engine,
    kind: kindOf(engine, gpu),
    device: gpu === null ? null : { devicePtr: gpu.region.devicePtr ?? 0n, handle: gpu.region.handle },
    debug,
  });
  return new DpdkTransport(wire, selection);

  async function open(settings: Parameters<typeof Engine.open>[1]): Promise<Engine> {
    try {
      return await Engine.open(dpdkVerbs(await openShim("libzap_dpdk", host.env, host)), settings);
    } catch (cause) {
      throw cause instanceof ShimError ? new NotAvailableError(`dpdk: ${cause.message}`, { cause }) : cause;
    }
  }
}

interface Gpu {
  readonly memory: DeviceMemory;
  readonly region: Region;
}

/** Tells the GPU of the region. A GPU that does not take it is no error: then packets are for the CPU alone. */
async function register(
  engine: Engine,
  runtime: Parameters<typeof openDeviceMemory>[0],
  host: Host,
): Promise<Gpu | null> {
  let memory: DeviceMemory | null = null;
  try {
    memory = await openDeviceMemory(runtime, host.env, host);
    return { memory, region: memory.register(engine.info.address, engine.info.bytes) };
  } catch (error) {
    if (!(error instanceof ZapError)) throw error;
    try {
      memory?.close();
    } catch {
      // It is not needed any more.
    }
    return null;
  }
}

function kindOf(engine: Engine, gpu: Gpu | null): MemoryKind {
  const { address, poolOffset, poolBytes } = engine.info;
  return hugepageKind({
    address: address + poolOffset,
    bytes: poolBytes,
    device: gpu === null ? null : { ...gpu, offset: poolOffset },
    // The wire's memory sees to the region itself.
    onClose: () => {},
  });
}

/** In the size that has most of them. */
function freeHugepages(host: Host): number {
  return Math.max(0, ...hosts.hugepages(host).map(({ kib, free }) => kib * 1024 * free));
}

class DpdkTransport extends WireTransport<DpdkWire> {
  readonly name = "dpdk";
  readonly caps: Capabilities;
  readonly poolBytes: number;

  constructor(wire: DpdkWire, selection: Selection) {
    super(wire, selection);
    const { pool } = wire.memory;
    this.poolBytes = pool.poolBytes;
    this.caps = { ...DPDK_CAPS, gpuResident: pool.kind.reach.gpu };
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
