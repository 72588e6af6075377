/**
 * Whether memory of a GPU can be registered with a network card here: tried with a small real region where the card and the GPU can be opened, because
 * what host and drivers say of it is no proof; else by what the host's files say.
 */
import { closeSync } from "node:fs";
import { ShimError, ZapError } from "../../errors/index.ts";
import { cText, GPUDIRECT_METHODS, type Shim } from "../../ffi/index.ts";
import { openDeviceMemory, type DeviceMemory, type DeviceOptions } from "../../memory/index.ts";
import type { GpudirectEnvironment, MethodChoice } from "../../wire/index.ts";
import type { Prerequisite } from "../contract.ts";
import { closeQuietly, methodsOf, type GpuMethod } from "../gpudirect-memory.ts";
import * as hosts from "../host.ts";
import type { Host } from "../host.ts";
import { met, missing } from "./prerequisite.ts";

export const REGISTRATION = "GPU memory registration";
/** What a GPU's driver maps for a network card at once. */
const TRIED_BYTES = 64 * 1024;
/** The first kernel that lets an RDMA device take memory by dma-buf. */
const DMA_BUF_KERNEL = [5, 12] as const;
const CODES: Readonly<Record<GpuMethod, number>> = {
  "dma-buf": GPUDIRECT_METHODS.dmaBuf,
  peermem: GPUDIRECT_METHODS.peermem,
  "page-locked": GPUDIRECT_METHODS.locked,
};

export interface Registration {
  readonly row: Prerequisite;
  /** The way that the transport takes here, or null. */
  readonly method: GpuMethod | null;
}

/** What it is tried with: a network card that opens. */
export interface Card {
  readonly shim: Shim<"libzap_gpudirect">;
  /** Absolute path. */
  readonly libibverbs: string;
  readonly environment: GpudirectEnvironment;
}

/** Registers 64 KiB by each method, and lets go of it again. */
export async function tryRegistration(host: Host, gpu: DeviceOptions, card: Card): Promise<Registration> {
  let memory: DeviceMemory;
  try {
    memory = await openDeviceMemory(gpu, host.env, host);
  } catch (error) {
    if (!(error instanceof ZapError)) throw error;
    const fix = "The GPU has to open before its memory can be registered: see what the row of uma says.";
    return { row: missing(REGISTRATION, `${error.message}; nothing was registered`, fix), method: null };
  }
  const tries = new Map<GpuMethod, string | null>();
  let stuck = false;
  for (const method of methodsOf("auto")) {
    const error: ZapError | null = stuck ? null : tryMethod(memory, method, card);
    tries.set(method, stuck ? "not tried" : (error?.message ?? null));
    stuck ||= error !== null && keepsMemory(error, card);
  }
  const row = rowOf(host, memory, tries, card);
  // What a network card still has must stay.
  if (!stuck) closeQuietly(memory);
  const method = methodsOf(card.environment.method).find((each) => tries.get(each) === null) ?? null;
  return { row, method };
}

/** Whether the network card still has what was registered. The GPU's shim has a timeout of its own, which means something else. */
function keepsMemory(error: ZapError, { shim }: Card): boolean {
  return error instanceof ShimError && error.library === shim.name && error.status === "ZAP_E_TIMEOUT";
}

/** Null where it was registered and deregistered, else why not. */
function tryMethod(memory: DeviceMemory, method: GpuMethod, card: Card): ZapError | null {
  const { shim, libibverbs, environment } = card;
  let dmaBuf = -1;
  try {
    const locked = method === "page-locked";
    const region = locked ? memory.allocLocked(TRIED_BYTES) : memory.allocDevice(TRIED_BYTES);
    if (method === "dma-buf") dmaBuf = memory.exportRegion(region);
    const address = locked ? region.address : (region.devicePtr ?? 0n);
    const [runtime, device] = [cText(libibverbs), cText(environment.device)];
    const status = shim.call.probe_memory(runtime, device, CODES[method], address, region.bytes, dmaBuf);
    shim.check(status, "registering it");
    region.free();
    return null;
  } catch (error) {
    if (!(error instanceof ZapError)) throw error;
    return error;
  } finally {
    if (dmaBuf >= 0) closeSync(dmaBuf);
  }
}

function rowOf(
  host: Host,
  memory: DeviceMemory,
  tries: ReadonlyMap<GpuMethod, string | null>,
  { environment }: Card,
): Prerequisite {
  const told = [...tries].map(
    ([method, fault]) => `${method}: ${fault ?? `${TRIED_BYTES / 1024} KiB registered`}`,
  );
  const seen = `${told.join("; ")} (${factsOf(host, memory).join(", ")})`;
  const working = [...tries].filter(([, fault]) => fault === null).map(([method]) => method);
  const choice = environment.method;
  if (working.length > 0 && (choice === "auto" || working.includes(choice))) return met(REGISTRATION, seen);
  if (working.length > 0) {
    const fix = `export ZAP_GPUDIRECT_METHOD=${working[0]}`;
    return missing(REGISTRATION, `ZAP_GPUDIRECT_METHOD is ${choice}; ${seen}`, fix);
  }
  return missing(REGISTRATION, seen, ...fixes(host, memory));
}

/** What one would ask about next. */
function factsOf(host: Host, { name, device }: DeviceMemory): string[] {
  const facts = [`kernel ${kernelOf(host)}`];
  if (name === "cuda") {
    facts.push(driverOf(host));
    facts.push(`CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED ${device.flags.has("dmaBuf") ? 1 : 0}`);
    facts.push(peerModule(host) ?? "nvidia_peermem not loaded");
  } else facts.push(device.flags.has("dmaBuf") ? "dma-buf supported" : "dma-buf not supported");
  if (device.flags.has("integrated")) facts.push("the GPU is integrated");
  return facts;
}

function fixes(host: Host, { name, device }: DeviceMemory): string[] {
  const modprobe = name === "cuda" && peerModule(host) === null && !device.flags.has("integrated");
  return [
    ...(modprobe ? ["sudo modprobe nvidia-peermem"] : []),
    "For page-locked memory, let this process lock as much as it wants:",
    "ulimit -l unlimited",
  ];
}

/** Either of two ways lets the network card reach the GPU's own memory: NVIDIA's module for it, or the kernel's dma-buf. */
export function registrationByFiles(host: Host, choice: MethodChoice): Prerequisite {
  const untried = "by the host's files, as nothing could be registered";
  if (choice === "page-locked")
    return met(REGISTRATION, `page-locked memory takes no more than the GPU; ${untried}`);
  const module = peerModule(host);
  if (module !== null) return met(REGISTRATION, `${module} is loaded; ${untried}`);

  const driver = hosts.nvidiaDriver(host);
  const kernel = hosts.kernelVersion(host);
  const running = `kernel ${kernelOf(host)}`;
  const recent = kernel !== null && atLeast(kernel, DMA_BUF_KERNEL);
  if (driver?.open && recent)
    return met(REGISTRATION, `dma-buf: open NVIDIA driver ${driver.version}, ${running}; ${untried}`);

  const needed = `nvidia_peermem is not loaded; the other way, dma-buf, needs NVIDIA's open driver and kernel ${DMA_BUF_KERNEL.join(".")} (here: ${driverOf(host)}, ${running}); ${untried}`;
  return driver === null
    ? missing(REGISTRATION, needed, "Once the NVIDIA driver is installed:", "sudo modprobe nvidia-peermem")
    : missing(REGISTRATION, needed, "sudo modprobe nvidia-peermem");
}

function peerModule(host: Host): string | null {
  return ["nvidia_peermem", "nv_peer_mem"].find((each) => hosts.hasModule(host, each)) ?? null;
}

function driverOf(host: Host): string {
  const driver = hosts.nvidiaDriver(host);
  return driver === null ? "no NVIDIA driver" : `${driver.open ? "open" : "closed"} driver ${driver.version}`;
}

function kernelOf(host: Host): string {
  return hosts.kernelVersion(host)?.join(".") ?? "of unknown version";
}

function atLeast(
  [major, minor]: readonly [number, number],
  [wantMajor, wantMinor]: readonly [number, number],
): boolean {
  return major > wantMajor || (major === wantMajor && minor >= wantMinor);
}
