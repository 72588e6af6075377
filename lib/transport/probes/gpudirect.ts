/** `gpudirect`: an RDMA network card that writes into memory that a GPU reads in place. Linux only. */
import { cText, readPrerequisites } from "../../ffi/index.ts";
import { gpudirectEnvironment, type GpudirectEnvironment } from "../../wire/index.ts";
import type { Capabilities, Prerequisite, Probe } from "../contract.ts";
import * as hosts from "../host.ts";
import type { Host, RdmaDevice } from "../host.ts";
import { cudaDevice, cudaPrerequisites } from "./cuda.ts";
import { hipDevice, hipPrerequisites } from "./hip.ts";
import { install } from "./packages.ts";
import { met, missing, platformNeeded, row } from "./prerequisite.ts";
import { PROBE_ROWS, probeMemory, shimLoaded } from "./shims.ts";
import { umaKind } from "./uma.ts";

export const LIBIBVERBS = "libibverbs.so.1";
/** The first kernel that lets an RDMA device take memory by dma-buf. */
const DMA_BUF_KERNEL = [5, 12] as const;
const REGISTRATION = "GPU memory registration";
const HOST_MEMORY = "ZAP_GPUDIRECT_HOST_MEMORY";

/** What the wire does here; the transport raises `gpuResident` where a GPU has given the memory. 2 us is what RDMA between two cards takes. */
export const GPUDIRECT_CAPS: Capabilities = { gpuResident: false, zeroCopy: true, minLatencyMicros: 2 };

export async function probeGpudirect(host: Host): Promise<Probe> {
  const common = { name: "gpudirect", wire: "verbs" } as const;
  if (host.platform !== "linux") {
    const library = [platformNeeded(host, "Linux")];
    return row({ ...common, memory: "cuda", device: null, library, host: [] });
  }
  const environment = settings(host);
  const gpu = gpuRows(host);
  // Page-locked memory takes no more than the GPU itself.
  const usable = gpu.every((each) => each.met || each.name === REGISTRATION);
  const { library, asked } = await ask(host, environment);
  const devices = [rdmaName(host, environment), umaKind(host) === "hip" ? hipDevice(host) : cudaDevice(host)];
  const found = devices.filter((device) => device != null);
  return row({
    ...common,
    memory: !usable && environment.hostMemory ? "locked" : umaKind(host) === "hip" ? "hip" : "cuda",
    device: found.length === 0 ? null : found.join(" + "),
    library: [library],
    host: [
      rdmaDevice(host, environment),
      libibverbs(host),
      ...asked,
      ...(environment.hostMemory ? gpu.map(notNeeded) : gpu),
    ],
    caps: { ...GPUDIRECT_CAPS, gpuResident: usable },
  });
}

/** A value that cannot be used is told of before any probe; here it is as if nothing were set. */
function settings(host: Host): GpudirectEnvironment {
  try {
    return gpudirectEnvironment(host.env);
  } catch {
    return gpudirectEnvironment({});
  }
}

/** A GPU, and a way to give its NIC memory that it shares. */
function gpuRows(host: Host): Prerequisite[] {
  if (umaKind(host) === "hip") return hipPrerequisites(host);
  return [...cudaPrerequisites(host), registration(host)];
}

function notNeeded(prerequisite: Prerequisite): Prerequisite {
  if (prerequisite.met) return prerequisite;
  return met(prerequisite.name, `${prerequisite.seen}; not needed: ${HOST_MEMORY}`);
}

/** Our library, and where libibverbs is installed too, what it finds when it opens the device. */
async function ask(
  host: Host,
  { device }: GpudirectEnvironment,
): Promise<{ readonly library: Prerequisite; readonly asked: readonly Prerequisite[] }> {
  const { shim, row: library } = await shimLoaded(host, "libzap_gpudirect");
  const runtime = hosts.library(host, LIBIBVERBS);
  if (shim === null || runtime === null) return { library, asked: [] };
  const memory = probeMemory();
  const status = shim.call.probe(cText(runtime), cText(device), memory, PROBE_ROWS);
  return { library, asked: readPrerequisites(memory, shim.check(status, "probing")) };
}

function rdmaName(host: Host, { device }: GpudirectEnvironment): string | undefined {
  return hosts.rdmaDevices(host).find((each) => isUp(each) && (device === "" || each.name === device))?.name;
}

function rdmaDevice(host: Host, { device }: GpudirectEnvironment): Prerequisite {
  const name = "RDMA device";
  const all = hosts.rdmaDevices(host);
  const devices = device === "" ? all : all.filter((each) => each.name === device);
  if (devices.length === 0 && all.length > 0) {
    const others = all.map((each) => each.name).join(", ");
    const seen = `ZAP_GPUDIRECT_DEVICE is ${device}, and there is ${others}`;
    return missing(name, seen, `export ZAP_GPUDIRECT_DEVICE=${all[0]!.name}`);
  }
  const seen = devices
    .map(({ name, states }) => (states.length ? `${name} (${states.join(", ")})` : name))
    .join(", ");
  if (devices.some(isUp)) return met(name, seen);

  if (devices.length > 0) {
    return missing(
      name,
      `${seen}; needed is one with an ACTIVE port`,
      ...devices.flatMap(({ interfaces }) => interfaces.map((each) => `sudo ip link set ${each} up`)),
      "Where the link stays down: check the cable, and the port of the switch.",
    );
  }
  const cards = hosts.pciDevices(host, hosts.PCI_NETWORK);
  return missing(
    name,
    "nothing in /sys/class/infiniband",
    cards.some((card) => card.vendor === hosts.VENDOR_MELLANOX)
      ? "sudo modprobe mlx5_ib"
      : "Needs an RDMA network card, such as a ConnectX-6 or later.",
  );
}

// A driver that does not tell the state of its ports gets the benefit of the doubt.
function isUp({ states }: RdmaDevice): boolean {
  return states.length === 0 || states.includes("ACTIVE");
}

function libibverbs(host: Host): Prerequisite {
  const path = hosts.library(host, LIBIBVERBS);
  return path !== null
    ? met(LIBIBVERBS, path)
    : missing(LIBIBVERBS, "not installed", ...install(host, LIBIBVERBS));
}

/** Either of two ways lets the network card reach GPU memory: NVIDIA's module for it, or the kernel's dma-buf. */
function registration(host: Host): Prerequisite {
  const name = REGISTRATION;
  const module = ["nvidia_peermem", "nv_peer_mem"].find((each) => hosts.hasModule(host, each));
  if (module !== undefined) return met(name, `${module} is loaded`);

  const driver = hosts.nvidiaDriver(host);
  const kernel = hosts.kernelVersion(host);
  const running = `kernel ${kernel === null ? "of unknown version" : kernel.join(".")}`;
  const recent = kernel !== null && atLeast(kernel, DMA_BUF_KERNEL);
  if (driver?.open && recent) return met(name, `dma-buf: open NVIDIA driver ${driver.version}, ${running}`);

  const loaded =
    driver === null ? "no NVIDIA driver" : `${driver.open ? "open" : "closed"} driver ${driver.version}`;
  const needed = `nvidia_peermem is not loaded; the other way, dma-buf, needs NVIDIA's open driver and kernel ${DMA_BUF_KERNEL.join(".")} (here: ${loaded}, ${running})`;
  return driver === null
    ? missing(name, needed, "Once the NVIDIA driver is installed:", "sudo modprobe nvidia-peermem")
    : missing(name, needed, "sudo modprobe nvidia-peermem");
}

function atLeast(
  [major, minor]: readonly [number, number],
  [wantMajor, wantMinor]: readonly [number, number],
) {
  return major > wantMajor || (major === wantMajor && minor >= wantMinor);
}
