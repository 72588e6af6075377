/**
 * What this host has, as far as its files tell. Every function only reads, never throws, and answers "nothing" where a file
 * is missing or cannot be read. All of them take a `Host`, so that a folder with a made-up `/sys` and `/proc` will do.
 */
import { accessSync, constants, existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { cpus } from "node:os";
import { basename, join } from "node:path";
import { locateLibrary, platformHere, type Platform } from "../ffi/index.ts";

/** One look at a host: what was searched for once with it is not searched for again. */
export interface Host extends Platform {
  /** The folder that stands for `/`. */
  readonly root: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The processor's name, or null. On Apple silicon the GPU goes by the same name. */
  readonly cpu: string | null;
}

/** The machine that we run on. */
export function thisHost(env: Host["env"] = process.env): Host {
  // Listing the processors of a large server takes milliseconds, and only macOS needs the name.
  const cpu = process.platform === "darwin" ? (cpus()[0]?.model ?? null) : null;
  return { ...platformHere(), root: "/", env, cpu };
}

/** Absolute path of an installed library, or null; see `locateLibrary` in ffi. */
export function library(host: Host, soname: string): string | null {
  return once(host, `library ${soname}`, () =>
    locateLibrary(soname, { root: host.root, env: host.env, platform: host }),
  );
}

/** The pages of one size. */
export interface Hugepages {
  readonly kib: number;
  readonly total: number;
  readonly free: number;
}

/** One entry for each size that the kernel offers, smallest first; empty where it offers none. */
export function hugepages(host: Host): Hugepages[] {
  const pages: Hugepages[] = [];
  for (const entry of list(host, "/sys/kernel/mm/hugepages")) {
    const kib = Number(/^hugepages-(\d+)kB$/.exec(entry)?.[1]);
    if (!kib) continue;
    const folder = `/sys/kernel/mm/hugepages/${entry}`;
    pages.push({
      kib,
      total: count(host, `${folder}/nr_hugepages`),
      free: count(host, `${folder}/free_hugepages`),
    });
  }
  return pages.sort((a, b) => a.kib - b.kib);
}

/** Where hugepages are mounted. */
export function hugepageMounts(host: Host): string[] {
  const lines = (text(host, "/proc/mounts") ?? "").split("\n").map((line) => line.split(" "));
  return lines.filter(([, , type]) => type === "hugetlbfs").map(([, place]) => place!);
}

/** CPUs that the kernel leaves alone, as it lists them (`2-3,8`), or null: `isolated` or `nohz_full`. */
export function cpuList(host: Host, kind: "isolated" | "nohz_full"): string | null {
  const list = text(host, `/sys/devices/system/cpu/${kind}`)?.trim();
  // Where none was given, some kernels write this.
  return !list || list === "(null)" ? null : list;
}

/** The effective capabilities of this process as a set of bits, or null where the kernel does not say. */
export function capabilities(host: Host): bigint | null {
  const found = /^CapEff:\s*([0-9a-f]+)$/m.exec(text(host, "/proc/self/status") ?? "");
  return found ? BigInt(`0x${found[1]}`) : null;
}

const CAPABILITIES = { CAP_NET_ADMIN: 12n, CAP_NET_RAW: 13n, CAP_SYS_RAWIO: 17n } as const;

export function hasCapability(set: bigint, name: keyof typeof CAPABILITIES): boolean {
  return ((set >> CAPABILITIES[name]) & 1n) === 1n;
}

/** The number of a PCI device's IOMMU group, or null: `/dev/vfio/<number>` is its file. */
export function iommuGroup(host: Host, address: string): string | null {
  return link(host, `/sys/bus/pci/devices/${address}/iommu_group`);
}

/** Whether this process may open a file for reading and writing. */
export function usable(host: Host, path: string): boolean {
  try {
    accessSync(join(host.root, path), constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

export interface RdmaDevice {
  /** As in `/sys/class/infiniband`, for example `mlx5_0`. */
  readonly name: string;
  /** One word for each port, such as `ACTIVE` or `DOWN`; empty where the kernel does not say. */
  readonly states: readonly string[];
  /** Network interfaces of the same device. */
  readonly interfaces: readonly string[];
}

export function rdmaDevices(host: Host): RdmaDevice[] {
  return list(host, "/sys/class/infiniband").map((name) => {
    const folder = `/sys/class/infiniband/${name}`;
    const states = list(host, `${folder}/ports`)
      // The file reads `4: ACTIVE`.
      .map((port) => text(host, `${folder}/ports/${port}/state`)?.split(":").at(-1)?.trim())
      .filter((state) => state !== undefined);
    return { name, states, interfaces: list(host, `${folder}/device/net`) };
  });
}

/** Whether the kernel has this module, loaded or built in. `-` and `_` are the same to it. */
export function hasModule(host: Host, module: string): boolean {
  const name = module.replaceAll("-", "_");
  if (exists(host, `/sys/module/${name}`)) return true;
  return (text(host, "/proc/modules") ?? "").split("\n").some((line) => line.startsWith(`${name} `));
}

/** `[major, minor]` of the running Linux kernel, or null. */
export function kernelVersion(host: Host): readonly [number, number] | null {
  const match = /^(\d+)\.(\d+)/.exec(text(host, "/proc/sys/kernel/osrelease") ?? "");
  return match ? [Number(match[1]), Number(match[2])] : null;
}

export interface PciDevice {
  /** For example `0000:01:00.0`. */
  readonly address: string;
  /** 24 bits: class, subclass, programming interface. `0x02....` is a network device. */
  readonly class: number;
  readonly vendor: number;
  /** The kernel driver that it is bound to, or null. */
  readonly driver: string | null;
  /** Network interfaces that the driver made of it. */
  readonly interfaces: readonly string[];
}

export const PCI_NETWORK = 0x02;
export const PCI_DISPLAY = 0x03;
/** Where AMD's accelerators without a display report themselves. */
export const PCI_ACCELERATOR = 0x12;
export const VENDOR_NVIDIA = 0x10de;
export const VENDOR_AMD = 0x1002;
export const VENDOR_MELLANOX = 0x15b3;

/** All PCI devices of one class (the upper 8 bits), by address. */
export function pciDevices(host: Host, ofClass: number): PciDevice[] {
  return once(host, "pci", () => readPciDevices(host)).filter((device) => device.class >> 16 === ofClass);
}

function readPciDevices(host: Host): PciDevice[] {
  const found: PciDevice[] = [];
  for (const address of list(host, "/sys/bus/pci/devices")) {
    const folder = `/sys/bus/pci/devices/${address}`;
    const code = Number(text(host, `${folder}/class`)?.trim() ?? NaN);
    // Servers have hundreds of bridges and the like: read on only where somebody may ask.
    if (![PCI_NETWORK, PCI_DISPLAY, PCI_ACCELERATOR].includes(code >> 16)) continue;
    found.push({
      address,
      class: code,
      vendor: Number(text(host, `${folder}/vendor`)?.trim() ?? NaN),
      driver: link(host, `${folder}/driver`),
      interfaces: [folder, ...virtioOf(host, folder)].flatMap((device) => list(host, `${device}/net`)),
    });
  }
  return found;
}

// The interface of a virtio NIC belongs to a device below the PCI one.
function virtioOf(host: Host, folder: string): string[] {
  return list(host, folder)
    .filter((entry) => /^virtio\d+$/.test(entry))
    .map((entry) => `${folder}/${entry}`);
}

/** Whether anybody may be using this interface. Also true where the kernel does not say. */
export function interfaceInUse(host: Host, name: string): boolean {
  const state = text(host, `/sys/class/net/${name}/operstate`)?.trim();
  return state !== "down" && state !== "notpresent";
}

export interface NvidiaDriver {
  readonly version: string;
  /** Built from NVIDIA's open kernel modules, which dma-buf needs. */
  readonly open: boolean;
}

/** The NVIDIA kernel driver that is loaded, or null. */
export function nvidiaDriver(host: Host): NvidiaDriver | null {
  const line = text(host, "/proc/driver/nvidia/version")?.split("\n")[0];
  if (line === undefined) return null;
  return {
    version: /\b\d{3,}\.\d+(\.\d+)?\b/.exec(line)?.[0] ?? "unknown",
    open: line.includes("Open Kernel Module"),
  };
}

/** What the NVIDIA driver calls its GPUs, in order of PCI address. */
export function nvidiaModels(host: Host): string[] {
  return list(host, "/proc/driver/nvidia/gpus").map(
    (gpu) =>
      /^Model:\s*(.+)$/m.exec(text(host, `/proc/driver/nvidia/gpus/${gpu}/information`) ?? "")?.[1]?.trim() ??
      gpu,
  );
}

/** The device files through which this process can reach an NVIDIA GPU: `/dev/nvidia0` and so on, `/dev/dxg` inside WSL. */
export function nvidiaNodes(host: Host): string[] {
  return list(host, "/dev")
    .filter((entry) => /^nvidia\d+$/.test(entry) || entry === "dxg")
    .map((entry) => `/dev/${entry}`);
}

/** The GPUs that AMD's compute driver reports, such as `AMD gfx942`. Empty without `/dev/kfd`. */
export function amdGpus(host: Host): string[] {
  if (!exists(host, "/dev/kfd")) return [];
  const nodes = "/sys/class/kfd/kfd/topology/nodes";
  return list(host, nodes)
    .filter((node) => count(host, `${nodes}/${node}/gpu_id`) !== 0)
    .map((node) => gfxName(text(host, `${nodes}/${node}/properties`) ?? ""));
}

// The version is decimal, two digits each for minor and step; the name has them in hexadecimal: 90010 is gfx90a.
function gfxName(properties: string): string {
  const version = Number(/^gfx_target_version (\d+)$/m.exec(properties)?.[1] ?? 0);
  if (version === 0) return "AMD GPU";
  const minor = Math.floor(version / 100) % 100;
  return `AMD gfx${Math.floor(version / 10_000)}${minor.toString(16)}${(version % 100).toString(16)}`;
}

/** `ID` and `ID_LIKE` of the distribution, closest first: `["ubuntu", "debian"]`. */
export function distribution(host: Host): string[] {
  const release = text(host, "/etc/os-release") ?? text(host, "/usr/lib/os-release") ?? "";
  const value = (key: string) =>
    new RegExp(`^${key}=(.*)$`, "m").exec(release)?.[1]?.replaceAll(/["']/g, "").trim() ?? "";
  return `${value("ID")} ${value("ID_LIKE")}`.split(/\s+/).filter((id) => id !== "");
}

const looks = new WeakMap<Host, Map<string, unknown>>();

function once<T>(host: Host, key: string, look: () => T): T {
  let known = looks.get(host);
  if (!known) looks.set(host, (known = new Map()));
  if (!known.has(key)) known.set(key, look());
  return known.get(key) as T;
}

export function exists(host: Host, path: string): boolean {
  return existsSync(join(host.root, path));
}

function text(host: Host, path: string): string | null {
  try {
    return readFileSync(join(host.root, path), "utf8");
  } catch {
    return null;
  }
}

function count(host: Host, path: string): number {
  const value = Number.parseInt(text(host, path) ?? "", 10);
  return Number.isFinite(value) ? value : 0;
}

function list(host: Host, path: string): string[] {
  try {
    return readdirSync(join(host.root, path)).sort();
  } catch {
    return [];
  }
}

function link(host: Host, path: string): string | null {
  try {
    return basename(readlinkSync(join(host.root, path)));
  } catch {
    return null;
  }
}
