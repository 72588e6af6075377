/** `dpdk`: a network device driven from user space, receiving into hugepages. Linux only. */
import { dpdkEnvironment, hugepageBytesNeeded, type DpdkEnvironment } from "../../wire/index.ts";
import type { Capabilities, Prerequisite, Probe } from "../contract.ts";
import * as hosts from "../host.ts";
import type { Host, Hugepages, PciDevice } from "../host.ts";
import { install } from "./packages.ts";
import { met, missing, platformNeeded, row } from "./prerequisite.ts";
import { ownRows } from "./shims.ts";

/** What we propose to reserve: 1024 pages of 2 MiB. */
const PROPOSED_KIB = 2 * 1024 * 1024;
/** A software device instead of a PCI one, in DPDK's own words: `net_memif0,role=client,...`. */
const VDEV = "ZAP_DPDK_VDEV";
const ADDRESS = "ZAP_DPDK_ADDRESS";

/**
 * What the wire does here; the transport raises `gpuResident` where the GPU has taken the memory. A message of one segment is handed over
 * where its packet landed, a larger one is put together by one copy. 5 us is what a message between two processes that sleep now and then
 * takes over a software device.
 */
export const DPDK_CAPS: Capabilities = { gpuResident: false, zeroCopy: false, minLatencyMicros: 5 };

/** Software devices that reach into the kernel's network. */
const PRIVILEGED_VDEV = /^net_(af_packet|af_xdp|tap)/;

/**
 * Kernel drivers under which DPDK can drive a device. The first three hand it over; under mlx5_core it stays with the kernel as
 * well, and binding such a device to vfio-pci would only make it useless.
 */
const READY_DRIVERS = new Set(["vfio-pci", "uio_pci_generic", "igb_uio", "mlx5_core"]);

export async function probeDpdk(host: Host): Promise<Probe> {
  const common = { name: "dpdk", wire: "dpdk", memory: "hugepages", caps: DPDK_CAPS } as const;
  if (host.platform !== "linux")
    return row({ ...common, device: null, library: [platformNeeded(host, "Linux")], host: [] });
  return row({
    ...common,
    device: device(host),
    library: await ownRows(host, "libzap_dpdk"),
    host: [
      hugepages(host),
      libdpdk(host),
      port(host),
      address(host),
      permission(host),
      isolatedCpus(host),
      gpu(host),
    ],
  });
}

/** What DPDK is to drive: the software device with its arguments, or the address of a network card; null where there is none. */
export function dpdkDevice(host: Host): string | null {
  const vdev = configuredVdev(host);
  if (vdev !== null) return isVdev(vdev) ? vdev : null;
  return readyCard(host)?.address ?? null;
}

/** The card that was asked for, or the first, under a driver that hands it over. */
function readyCard(host: Host): PciDevice | undefined {
  const wanted = configuredCard(host);
  return hosts
    .pciDevices(host, hosts.PCI_NETWORK)
    .find((each) => isReady(each) && (wanted === null || each.address === wanted));
}

function libdpdk(host: Host): Prerequisite {
  const path = hosts.library(host, "librte_eal.so*");
  if (path !== null) return met("libdpdk", path);
  return missing("libdpdk", "not installed: no librte_eal.so", ...install(host, "libdpdk"));
}

function hugepages(host: Host): Prerequisite {
  const name = "hugepages";
  const environment = settings(host);
  if (!environment.hugepages) return met(name, "not asked for: ZAP_DPDK_HUGEPAGES");
  const neededKib = Math.ceil(hugepageBytesNeeded(environment) / 1024);
  const sizes = hosts.hugepages(host);
  const mounts = hosts.hugepageMounts(host);
  // Without a mount they can still be had, as memory that belongs to no file.
  const mounted =
    mounts.length === 0 ? "not mounted, which is not needed" : `mounted on ${mounts.join(", ")}`;
  const seen = `${sizes.map(describe).join(", ")}; ${mounted}`;
  if (sizes.some((size) => size.free * size.kib >= neededKib)) return met(name, seen);

  // 2 MiB is the size that every x86 and most ARM kernels can still find at run time.
  const size = sizes.find((candidate) => candidate.kib === 2048) ?? sizes[0];
  if (size === undefined) {
    return missing(
      name,
      "the kernel shows none in /sys/kernel/mm/hugepages",
      "Needs a kernel with CONFIG_HUGETLBFS, and /sys readable from here.",
    );
  }
  const pages = size.total + Math.ceil(Math.max(PROPOSED_KIB, neededKib) / size.kib);
  return missing(
    name,
    `${sizes.map(describe).join(", ")}; needed: ${Math.ceil(neededKib / 1024)} MiB free in one size`,
    `echo ${pages} | sudo tee /sys/kernel/mm/hugepages/hugepages-${size.kib}kB/nr_hugepages`,
  );
}

/** A value that cannot be used is told of before any probe; here it is as if nothing were set. */
function settings(host: Host): DpdkEnvironment {
  try {
    return dpdkEnvironment(host.env);
  } catch {
    return dpdkEnvironment({});
  }
}

/** The port's own address: nobody else gives it one. */
function address(host: Host): Prerequisite {
  const name = "address";
  const given = host.env[ADDRESS]?.trim() ?? "";
  if (given !== "") return met(name, given);
  return missing(
    name,
    `${ADDRESS} is not set: the port has no address of its own`,
    `export ${ADDRESS}=10.0.0.1/24`,
    "Take an address that no other host of that network has.",
  );
}

function describe({ kib, total, free }: Hugepages): string {
  const size =
    kib >= 1024 * 1024 ? `${kib / (1024 * 1024)} GiB` : kib >= 1024 ? `${kib / 1024} MiB` : `${kib} KiB`;
  return `${free} of ${total} pages of ${size} free`;
}

function port(host: Host): Prerequisite {
  const name = "port";
  const vdev = configuredVdev(host);
  if (vdev !== null) {
    if (isVdev(vdev)) return met(name, `${VDEV}=${vdev}`);
    return missing(
      name,
      `${VDEV} is ${JSON.stringify(vdev)}, which names no network device of DPDK's`,
      `export ${VDEV}=net_memif0`,
    );
  }
  const devices = hosts.pciDevices(host, hosts.PCI_NETWORK);
  const wanted = configuredCard(host);
  if (wanted !== null) return wantedCard(host, wanted, devices);
  const ready = devices.filter(isReady);
  if (ready.length > 0) return met(name, ready.map(label).join(", "));
  return missing(
    name,
    `no network device is bound to vfio-pci, and ${VDEV} is not set`,
    ...portFix(host, devices),
  );
}

function wantedCard(host: Host, wanted: string, devices: readonly PciDevice[]): Prerequisite {
  const found = devices.find((each) => each.address === wanted);
  if (found === undefined)
    return missing(
      "port",
      `ZAP_DPDK_PCI is ${wanted}, and there is no such network card`,
      `export ZAP_DPDK_PCI=`,
    );
  if (isReady(found)) return met("port", label(found));
  const seen = `ZAP_DPDK_PCI is ${wanted}, which is bound to ${found.driver ?? "no driver"}`;
  const driver = hosts.hasModule(host, "vfio-pci") ? [] : ["sudo modprobe vfio-pci"];
  if (found.interfaces.some((name) => hosts.interfaceInUse(host, name)))
    return missing(
      "port",
      `${seen} and in use as ${found.interfaces.join(", ")}`,
      "Take a card that carries no traffic.",
    );
  return missing("port", seen, ...driver, `sudo dpdk-devbind.py --bind=vfio-pci ${wanted}`);
}

function portFix(host: Host, devices: readonly PciDevice[]): string[] {
  if (devices.length === 0) {
    return [
      "Needs a network device on the PCI bus; a software device will do to try it out:",
      `export ${VDEV}=net_memif0`,
    ];
  }
  const driver = hosts.hasModule(host, "vfio-pci") ? [] : ["sudo modprobe vfio-pci"];
  // Never name a device that carries traffic: whoever pastes the command may be logged in through it.
  const spare = devices.find((each) => each.interfaces.every((name) => !hosts.interfaceInUse(host, name)));
  if (spare) return [...driver, `sudo dpdk-devbind.py --bind=vfio-pci ${spare.address}`];
  return [
    ...driver,
    "sudo dpdk-devbind.py --bind=vfio-pci <PCI address>",
    "Take a device that you can spare: the system loses it, and with it every connection it carries.",
  ];
}

/** Whether this process may use the port: as far as files and the process itself tell, nothing is opened. */
function permission(host: Host): Prerequisite {
  const name = "permission";
  const vdev = configuredVdev(host);
  const device = vdev === null ? readyCard(host) : undefined;
  if (vdev === null && device === undefined) return met(name, "nothing to ask for: no port");
  if (vdev !== null && !PRIVILEGED_VDEV.test(vdev)) return met(name, "none needed for this software device");
  if (vdev !== null) {
    const capability = /^net_tap/.test(vdev) ? "CAP_NET_ADMIN" : "CAP_NET_RAW";
    const capabilities = hosts.capabilities(host);
    if (capabilities === null || hosts.hasCapability(capabilities, capability)) {
      return met(name, capabilities === null ? `not to be seen here: ${capability}` : capability);
    }
    return missing(
      name,
      `this process lacks ${capability}, which ${vdev.split(",")[0]} needs`,
      `sudo setcap ${capability.toLowerCase()}+ep "$(readlink -f "$(command -v bun)")"`,
      "Or run it as root.",
    );
  }
  if (device!.driver !== "vfio-pci") {
    const root = hosts.capabilities(host);
    if (root === null || hosts.hasCapability(root, "CAP_SYS_RAWIO") || device!.driver === "mlx5_core") {
      return met(name, `under ${device!.driver}`);
    }
    return missing(
      name,
      `${label(device!)} takes CAP_SYS_RAWIO`,
      "Run it as root, or bind the device to vfio-pci.",
    );
  }
  const group = hosts.iommuGroup(host, device!.address);
  const node = group === null ? "/dev/vfio/vfio" : `/dev/vfio/${group}`;
  if (hosts.usable(host, node)) return met(name, `${node} can be opened for reading and writing`);
  return missing(
    name,
    `${node} ${hosts.exists(host, node) ? "may not be opened by this user" : "does not exist"}`,
    hosts.exists(host, node) ? `sudo chown "$USER" ${node}` : "sudo modprobe vfio-pci",
  );
}

/** Advice: a thread that polls has steadier times on a CPU that the kernel leaves to it. */
function isolatedCpus(host: Host): Prerequisite {
  const isolated = hosts.cpuList(host, "isolated");
  const quiet = hosts.cpuList(host, "nohz_full");
  const seen =
    isolated === null
      ? "none, which is no must: isolcpus and nohz_full on the kernel's command line make times steadier"
      : `isolcpus ${isolated}, nohz_full ${quiet ?? "none"}`;
  return met("isolated CPUs", seen);
}

/** Advice too: without a GPU packets are for the CPU alone. Whether the GPU takes the pages is known once they are registered. */
function gpu(host: Host): Prerequisite {
  const name = "GPU registration";
  const driver = hosts.nvidiaDriver(host);
  if (hosts.amdGpus(host).length > 0) return met(name, "by hipHostRegister");
  if (driver === null) return met(name, "not possible: no driver of a GPU; packets are for the CPU alone");
  if (hosts.nvidiaNodes(host).length === 0) return met(name, "not possible: no /dev/nvidia0 here");
  if (hosts.library(host, "libcuda.so.1") === null) return met(name, "not possible: no libcuda.so.1 here");
  return met(name, `by cuMemHostRegister, driver ${driver.version}`);
}

function device(host: Host): string | null {
  const vdev = configuredVdev(host);
  if (vdev !== null) return isVdev(vdev) ? (vdev.split(",")[0] ?? vdev) : null;
  return readyCard(host)?.address ?? null;
}

function configuredCard(host: Host): string | null {
  return host.env["ZAP_DPDK_PCI"]?.trim().toLowerCase() || null;
}

function configuredVdev(host: Host): string | null {
  return host.env[VDEV]?.trim() || null;
}

function isVdev(value: string): boolean {
  return /^net_[a-z0-9_]+(,|$)/.test(value);
}

function isReady({ driver }: PciDevice): boolean {
  return driver !== null && READY_DRIVERS.has(driver);
}

function label({ address, driver }: PciDevice): string {
  return `${address} (${driver})`;
}
