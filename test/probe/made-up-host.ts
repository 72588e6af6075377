/** A host that exists in a temporary folder only: its `/sys`, `/proc`, `/dev` and libraries are whatever a test says. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { SHIMS } from "../../lib/ffi/index.ts";
import type { Host } from "../../lib/transport/host.ts";

/** Path to contents; a `link` is a symbolic link. */
export type Files = Readonly<Record<string, string | Uint8Array | { readonly link: string }>>;

const roots: string[] = [];

export function madeUpHost(files: Files = {}, differences: Partial<Host> = {}): Host {
  const root = mkdtempSync(join(tmpdir(), "zap-host-"));
  roots.push(root);
  for (const [path, contents] of Object.entries(files)) {
    const at = join(root, path);
    mkdirSync(dirname(at), { recursive: true });
    if (typeof contents === "string" || contents instanceof Uint8Array) writeFileSync(at, contents);
    else symlinkSync(contents.link, at);
  }
  const env = { ZAP_LIB_DIR: spoilt(), ...differences.env };
  return { platform: "linux", arch: "x64", musl: false, cpu: null, ...differences, env, root };
}

/**
 * A folder in which every shim is a text: what lies in `native/`, where there may be one or not, is then out of a test's sight. A
 * test that wants shims names another in `ZAP_LIB_DIR`.
 */
function spoilt(): string {
  if (spoiltFolder === null) {
    spoiltFolder = mkdtempSync(join(tmpdir(), "zap-spoilt-"));
    for (const name of Object.keys(SHIMS)) {
      for (const suffix of ["so", "dylib"])
        writeFileSync(join(spoiltFolder, `${name}.${suffix}`), "no library\n");
    }
  }
  return spoiltFolder;
}

let spoiltFolder: string | null = null;

/** For `afterAll`: removes every made-up host. */
export function forgetHosts(): void {
  for (const root of roots.splice(0)) rmSync(root, { recursive: true, force: true });
  if (spoiltFolder !== null) rmSync(spoiltFolder, { recursive: true, force: true });
  spoiltFolder = null;
}

/**
 * The headers of a 64-bit little-endian ELF library for one machine: 62 is x86-64, 183 is ARM, 3 is 32-bit x86. Whole, with one
 * segment of no bytes, and nothing in it.
 */
export function elf(machine = 62, bits: 32 | 64 = 64): Uint8Array {
  const header = new Uint8Array(64 + 56);
  header.set([0x7f, 0x45, 0x4c, 0x46, bits === 64 ? 2 : 1, 1, 1]);
  header[16] = 3;
  header[18] = machine;
  header[32] = 64;
  header[54] = 56;
  header[56] = 1;
  return header;
}

const LIBRARIES = "/usr/lib/x86_64-linux-gnu";

export const debian: Files = { "/etc/os-release": 'ID=debian\nVERSION_ID="12"\n' };

export const nvidia: Files = {
  "/proc/driver/nvidia/version":
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version: 12\n",
  "/proc/driver/nvidia/gpus/0000:17:00.0/information": "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\n",
  "/dev/nvidia0": "",
  "/dev/nvidiactl": "",
  [`${LIBRARIES}/libcuda.so.1`]: elf(),
  "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
};

export const amd: Files = {
  "/dev/kfd": "",
  "/sys/class/kfd/kfd/topology/nodes/0/gpu_id": "0\n",
  "/sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 64\n",
  "/sys/class/kfd/kfd/topology/nodes/1/gpu_id": "4711\n",
  "/sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 440\ngfx_target_version 90010\n",
  "/opt/rocm/lib/libamdhip64.so.6": elf(),
};

export const rdma: Files = {
  "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
  "/sys/class/infiniband/mlx5_0/device/net/ens1np0/operstate": "up\n",
  [`${LIBRARIES}/libibverbs.so.1`]: elf(),
};

export const dpdk: Files = {
  ...pages(2048, 1024, 1000),
  ...pages(1024 * 1024, 0, 0),
  ...pciDevice("0000:03:00.0", { class: "0x020000", vendor: "0x8086", driver: "vfio-pci" }),
  [`${LIBRARIES}/librte_eal.so.23`]: elf(),
  "/sys/bus/pci/devices/0000:03:00.0/iommu_group": { link: "../../../kernel/iommu_groups/12" },
  "/dev/vfio/12": "",
};

export function pages(kib: number, total: number, free: number): Files {
  const folder = `/sys/kernel/mm/hugepages/hugepages-${kib}kB`;
  return { [`${folder}/nr_hugepages`]: `${total}\n`, [`${folder}/free_hugepages`]: `${free}\n` };
}

export function pciDevice(
  address: string,
  about: { class: string; vendor: string; driver?: string; net?: Readonly<Record<string, "up" | "down">> },
): Files {
  const folder = `/sys/bus/pci/devices/${address}`;
  const files: Record<string, string | { link: string }> = {
    [`${folder}/class`]: `${about.class}\n`,
    [`${folder}/vendor`]: `${about.vendor}\n`,
  };
  if (about.driver) files[`${folder}/driver`] = { link: `../../../../bus/pci/drivers/${about.driver}` };
  for (const [name, state] of Object.entries(about.net ?? {})) {
    files[`${folder}/net/${name}/operstate`] = `${state}\n`;
    files[`/sys/class/net/${name}/operstate`] = `${state}\n`;
  }
  return files;
}
