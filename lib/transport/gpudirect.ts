/**
 * The `gpudirect` transport: messages that an RDMA device writes into memory of a GPU. Into its own, by dma-buf or by peermem, or into page-locked
 * host memory that it reads in place. Where an operator allows it, it runs without any GPU.
 */
import { NotAvailableError, ShimError, ZapError } from "../errors/index.ts";
import { gpudirectVerbs, openShim, type GpudirectVerbs } from "../ffi/index.ts";
import {
  debugMode,
  deviceLimits,
  openDeviceMemory,
  type Buffer,
  type DeviceMemory,
} from "../memory/index.ts";
import {
  gpudirectEnvironment,
  resolveVerbsOptions,
  VerbsEngine,
  VerbsWire,
  type VerbsOptions,
} from "../wire/index.ts";
import type { Capabilities, CloseReport, Selection, Transport, TransportOptions } from "./contract.ts";
import {
  allocate,
  closeDmaBuf,
  closeQuietly,
  kindOver,
  letGo,
  methodsOf,
  noMethod,
  receivedOn,
  type Attempt,
  type GpuMemory,
} from "./gpudirect-memory.ts";
import * as hosts from "./host.ts";
import type { Host } from "./host.ts";
import { GPUDIRECT_CAPS, LIBIBVERBS } from "./probes/gpudirect.ts";
import { umaRuntime } from "./probes/uma.ts";
import { WireTransport } from "./wire-transport.ts";

/**
 * Tries the GPU's memory by dma-buf, then by peermem, then page-locked (`ZAP_GPUDIRECT_METHOD` names one alone), and where none can be
 * registered, and `ZAP_GPUDIRECT_HOST_MEMORY` allows it, host memory without any GPU.
 *
 * Rejects with `NotAvailableError`, which names every way that was tried and why it failed, where the device or its memory cannot be had or the options
 * ask for what this wire does not have; `ConfigError` or `AddressError` for bad settings. Nothing stays open then, and no memory goes that a device
 * may still write to.
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
  const { method: choice, hostMemory } = environment;
  let verbs: GpudirectVerbs;
  let memory: DeviceMemory | null = null;
  const attempts: Attempt[] = [];
  const allFail = (error: ZapError): void =>
    void attempts.push(...methodsOf(choice).map((method) => ({ method, error })));
  try {
    verbs = gpudirectVerbs(await openShim("libzap_gpudirect", host.env, host));
  } catch (cause) {
    throw cause instanceof ShimError ? notAvailable(cause) : cause;
  }
  if (runtime === null) allFail(new NotAvailableError("neither CUDA nor HIP is usable here"));
  else {
    try {
      memory = await openDeviceMemory(runtime, host.env, host);
    } catch (error) {
      if (!(error instanceof ZapError)) throw error;
      allFail(error);
    }
  }
  if (memory !== null) {
    const opened = await openOnGpu(verbs, resolved, libibverbs, memory, attempts);
    if (opened !== null) return start(opened.engine, opened.gpu);
    closeQuietly(memory);
  }
  if (!hostMemory || choice !== "auto") throw noMethod(choice, attempts);
  try {
    return await start(await VerbsEngine.open(verbs, resolved, { runtime: libibverbs, memory: null }), null);
  } catch (cause) {
    throw cause instanceof ShimError ? notAvailable(cause) : cause;
  }

  async function start(engine: VerbsEngine, gpu: GpuMemory | null): Promise<Transport> {
    const { region } = gpu ?? {};
    const device = region === undefined ? null : { devicePtr: region.devicePtr ?? 0n, handle: region.handle };
    const received = gpu === null ? null : receivedOn(gpu);
    const kind = kindOver(engine.info, gpu);
    const wire = await VerbsWire.open(resolved, { engine, kind, device, received, debug });
    return new GpudirectTransport(wire, selection);
  }
}

/**
 * The first method that serves, or null with every failure in `attempts`; then nothing of the GPU's is registered or allocated. Rejects where a device
 * does not let go of memory, which then stays for good.
 */
async function openOnGpu(
  verbs: GpudirectVerbs,
  options: VerbsOptions,
  runtime: string,
  memory: DeviceMemory,
  attempts: Attempt[],
): Promise<{ readonly engine: VerbsEngine; readonly gpu: GpuMemory } | null> {
  const { environment, areas } = options;
  const sizes = { total: environment.regionBytes, received: areas.eager + areas.messages };
  for (const method of methodsOf(environment.method)) {
    let gpu: GpuMemory;
    try {
      gpu = allocate(method, memory, sizes);
    } catch (error) {
      if (!(error instanceof ZapError)) throw closed(memory, error);
      attempts.push({ method, error });
      continue;
    }
    try {
      const { address, bytes } = gpu.region;
      const engine = await VerbsEngine.open(verbs, options, {
        runtime,
        memory: { address, bytes },
        own: gpu.own,
      });
      return { engine, gpu };
    } catch (error) {
      if (!(error instanceof ShimError)) {
        letGo(gpu);
        throw closed(memory, error);
      }
      attempts.push({ method, error });
      // The device may still write there: neither the memory nor the GPU's runtime is let go of.
      if (error.status === "ZAP_E_TIMEOUT") throw noMethod(environment.method, attempts);
      letGo(gpu);
    } finally {
      closeDmaBuf(gpu);
    }
  }
  return null;
}

function closed(memory: DeviceMemory, error: unknown): unknown {
  closeQuietly(memory);
  return error;
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
    const { pool, received } = wire.memory;
    this.poolBytes = pool.poolBytes;
    // Of what lies in the GPU's own memory the CPU sees a copy.
    this.caps = { ...GPUDIRECT_CAPS, gpuResident: pool.kind.reach.gpu, zeroCopy: received === null };
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
