/** `gpudirect`: an RDMA network card that writes into GPU memory. Linux and NVIDIA only. */
import type { Prerequisite, Probe } from "../contract.ts";
import * as hosts from "../host.ts";
import type { Host, RdmaDevice } from "../host.ts";
import { cudaDevice, cudaPrerequisites } from "./cuda.ts";
import { install } from "./packages.ts";
import { dataPlane, met, missing, platformNeeded, row } from "./prerequisite.ts";
import { ownRows } from "./shims.ts";

const LIBIBVERBS = "libibverbs.so.1";
/** The first kernel that lets an RDMA device take memory by dma-buf. */
const DMA_BUF_KERNEL = [5, 12] as const;

export async function probeGpudirect(host: Host): Promise<Probe> {
  const common = { name: "gpudirect", wire: "verbs", memory: "cuda" } as const;
  const plane = dataPlane("gpudirect");
  if (host.platform !== "linux") {
    return row({ ...common, device: null, library: [plane], host: [platformNeeded(host, "Linux")] });
  }
  const devices = [hosts.rdmaDevices(host).find(isUp)?.name, cudaDevice(host)].filter(
    (device) => device != null,
  );
  return row({
    ...common,
    device: devices.length === 0 ? null : devices.join(" + "),
    library: [plane, ...(await ownRows(host, "libzap_gpudirect", plane))],
    host: [rdmaDevice(host), libibverbs(host), ...cudaPrerequisites(host), registration(host)],
  });
}

function rdmaDevice(host: Host): Prerequisite {
  const name = "RDMA device";
  const devices = hosts.rdmaDevices(host);
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
  const name = "GPU memory registration";
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
