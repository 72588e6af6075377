/** `gpudirect`: an RDMA network card that writes into memory that a GPU reads in place. Linux only. */
import { cText, readPrerequisites } from "../../ffi/index.ts";
import { gpudirectEnvironment, type GpudirectEnvironment, type MethodChoice } from "../../wire/index.ts";
import type { Capabilities, Prerequisite, Probe } from "../contract.ts";
import type { GpuMethod } from "../gpudirect-memory.ts";
import * as hosts from "../host.ts";
import type { Host, RdmaDevice } from "../host.ts";
import { cudaDevice, cudaPrerequisites } from "./cuda.ts";
import { hipDevice, hipPrerequisites } from "./hip.ts";
import { install } from "./packages.ts";
import { met, missing, platformNeeded, row } from "./prerequisite.ts";
import { REGISTRATION, registrationByFiles, tryRegistration, type Card } from "./registration.ts";
import { PROBE_ROWS, probeMemory, shimLoaded } from "./shims.ts";
import { umaKind, umaRuntime } from "./uma.ts";

export const LIBIBVERBS = "libibverbs.so.1";
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
  const { library, asked, card } = await ask(host, environment);
  const { rows: gpu, method } = await gpuRows(host, card, environment.method);
  const usable = gpu.every((each) => each.met);
  const hostMemory = environment.hostMemory && environment.method === "auto";
  const devices = [rdmaName(host, environment), umaKind(host) === "hip" ? hipDevice(host) : cudaDevice(host)];
  const found = devices.filter((device) => device != null);
  return row({
    ...common,
    memory: !usable && hostMemory ? "locked" : umaKind(host) === "hip" ? "hip" : "cuda",
    device: found.length === 0 ? null : found.join(" + "),
    library: [library],
    host: [
      rdmaDevice(host, environment),
      libibverbs(host),
      ...asked,
      ...(hostMemory ? gpu.map(notNeeded) : gpu),
    ],
    // Of what lies in the GPU's own memory the CPU sees a copy.
    caps: { ...GPUDIRECT_CAPS, gpuResident: usable, zeroCopy: method === null || method === "page-locked" },
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

/** A GPU, and a way to register its memory with the network card: tried where both can be opened. */
async function gpuRows(
  host: Host,
  card: Card | null,
  choice: MethodChoice,
): Promise<{ readonly rows: readonly Prerequisite[]; readonly method: GpuMethod | null }> {
  const hip = umaKind(host) === "hip";
  const rows = hip ? hipPrerequisites(host) : cudaPrerequisites(host);
  const runtime = umaRuntime(host);
  if (card !== null && runtime !== null && rows.every((each) => each.met)) {
    const { row, method } = await tryRegistration(host, runtime, card);
    return { rows: [...rows, row], method };
  }
  return { rows: [...rows, hip ? untried() : registrationByFiles(host, choice)], method: null };
}

/** What the driver of an AMD GPU can do is not to be seen in files. */
function untried(): Prerequisite {
  return missing(
    REGISTRATION,
    "nothing was registered: it takes a GPU and a network card that open",
    "Mend what is missing above first.",
  );
}

function notNeeded(prerequisite: Prerequisite): Prerequisite {
  if (prerequisite.met) return prerequisite;
  return met(prerequisite.name, `${prerequisite.seen}; not needed: ${HOST_MEMORY}`);
}

/** Our library, and where libibverbs is installed too, what it finds when it opens the device; a card that opens is told of. */
async function ask(
  host: Host,
  environment: GpudirectEnvironment,
): Promise<{
  readonly library: Prerequisite;
  readonly asked: readonly Prerequisite[];
  readonly card: Card | null;
}> {
  const { shim, row: library } = await shimLoaded(host, "libzap_gpudirect");
  const libibverbs = hosts.library(host, LIBIBVERBS);
  if (shim === null || libibverbs === null) return { library, asked: [], card: null };
  const memory = probeMemory();
  const { device, port, gidIndex } = environment;
  const status = shim.call.probe(cText(libibverbs), cText(device), port, gidIndex, memory, PROBE_ROWS);
  const asked = readPrerequisites(memory, shim.check(status, "probing"));
  const opens = asked.some((each) => each.name === "HCA" && each.met);
  return { library, asked, card: opens ? { shim, libibverbs, environment } : null };
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
