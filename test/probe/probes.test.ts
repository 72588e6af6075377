import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { platformHere, SHIMS, type ShimName } from "../../lib/ffi/index.ts";
import type { Prerequisite, Probe } from "../../lib/transport/contract.ts";
import type { Host } from "../../lib/transport/host.ts";
import { probeDefault, probeDpdk, probeGpudirect, probeUma } from "../../lib/transport/probes/index.ts";
import * as made from "./made-up-host.ts";
import { noCompiler } from "../support/compiler.ts";
import { fileIn, forgetStandIns, standIn, standInBytes, temporary } from "../ffi/stand-in.ts";
import { elf, madeUpHost, pages, pciDevice, type Files } from "./made-up-host.ts";

afterAll(made.forgetHosts);
afterAll(forgetStandIns);

const ALL = [probeGpudirect, probeDpdk, probeUma, probeDefault];

function the(probe: Probe, name: string): Prerequisite {
  const found = probe.prerequisites.find((each) => each.name === name);
  if (!found) throw new Error(`${probe.name} has no prerequisite ${name}`);
  return found;
}

function missing(probe: Probe): string[] {
  return probe.prerequisites.filter((each) => !each.met).map((each) => each.name);
}

/** A host of this process's platform, on which `ZAP_LIB_DIR` names a folder with stand-ins of all shims that find nothing missing. */
function withShims(files: Files, env: Record<string, string> = {}): Host {
  const shims = temporary();
  for (const name of Object.keys(SHIMS) as ShimName[]) writeFileSync(fileIn(shims, name), standInBytes(name));
  return madeUpHost(files, { ...platformHere(), env: { ZAP_LIB_DIR: shims, ...env } });
}

describe("every probe", () => {
  const hosts: Record<string, () => Host> = {
    "an empty host": () => madeUpHost(),
    ...(noCompiler
      ? {}
      : {
          "a host with everything": () =>
            withShims({ ...made.nvidia, ...made.rdma, ...made.dpdk }, { ZAP_DPDK_ADDRESS: "10.0.0.1/24" }),
        }),
    "a Mac": () => madeUpHost({}, { platform: "darwin", arch: "arm64", cpu: "Apple M4" }),
    Windows: () => madeUpHost({}, { platform: "win32" }),
  };
  for (const [name, host] of Object.entries(hosts)) {
    test(`keeps the contract on ${name}, and changes nothing there`, async () => {
      const where = host();
      const before = readdirSync(where.root, { recursive: true });
      for (const probe of ALL) {
        const row = await probe(where);
        expect(row.available).toBe(row.prerequisites.every((each) => each.met));
        expect(row.caps === null).toBe(!row.available);
        for (const { met, seen, fix } of row.prerequisites) {
          expect(seen).not.toBe("");
          expect(fix === "").toBe(met);
        }
        const names = row.prerequisites.map((each) => each.name);
        expect(new Set(names).size).toBe(names.length);
      }
      expect(readdirSync(where.root, { recursive: true })).toEqual(before);
    });
  }

  test.skipIf(noCompiler)("of gpudirect says that it is usable where the host has everything", async () => {
    const row = await probeGpudirect(withShims({ ...made.nvidia, ...made.rdma, ...made.dpdk }));
    expect(missing(row)).toEqual([]);
    expect(row).toMatchObject({
      built: true,
      available: true,
      memory: "cuda",
      device: "mlx5_0 + NVIDIA H200",
      caps: { gpuResident: true, zeroCopy: true, minLatencyMicros: 2 },
    });
  });

  test.skipIf(noCompiler)("of gpudirect does without a GPU where that is allowed, and says so", async () => {
    const without = await probeGpudirect(withShims(made.rdma));
    expect(missing(without)).toEqual(["libcuda.so.1", "GPU", "GPU memory registration"]);
    const allowed = await probeGpudirect(withShims(made.rdma, { ZAP_GPUDIRECT_HOST_MEMORY: "1" }));
    expect(missing(allowed)).toEqual([]);
    expect(allowed).toMatchObject({ memory: "locked", device: "mlx5_0", caps: { gpuResident: false } });
    expect(the(allowed, "GPU").seen).toEndWith("; not needed: ZAP_GPUDIRECT_HOST_MEMORY");
    const other = { ZAP_GPUDIRECT_HOST_MEMORY: "1", ZAP_GPUDIRECT_DEVICE: "mlx5_9" };
    const wrong = the(await probeGpudirect(withShims(made.rdma, other)), "RDMA device");
    expect(wrong).toMatchObject({
      met: false,
      seen: "ZAP_GPUDIRECT_DEVICE is mlx5_9, and there is mlx5_0",
      fix: "export ZAP_GPUDIRECT_DEVICE=mlx5_0",
    });
  });

  test.skipIf(noCompiler)("of dpdk says that it is usable where the host has everything", async () => {
    const host = withShims({ ...made.nvidia, ...made.dpdk }, { ZAP_DPDK_ADDRESS: "10.0.0.1/24" });
    const row = await probeDpdk(host);
    expect(missing(row)).toEqual([]);
    expect(row).toMatchObject({
      built: true,
      available: true,
      device: "0000:03:00.0",
      caps: { gpuResident: false, zeroCopy: false, minLatencyMicros: 5 },
    });
    const without = await probeDpdk(withShims({ ...made.nvidia, ...made.dpdk }));
    expect(missing(without)).toEqual(["address"]);
    expect(without).toMatchObject({ built: true, available: false, caps: null });
  });

  test("names the places where its shim is not", async () => {
    // No build is ever made for this architecture.
    const host = madeUpHost({}, { arch: "none", env: { ZAP_LIB_DIR: "/no/shims" } });
    for (const [probe, name] of [
      [probeGpudirect, "libzap_gpudirect"],
      [probeDpdk, "libzap_dpdk"],
      [probeUma, "libzap_uma_cuda"],
    ] as const) {
      const { met, seen, fix } = the(await probe(host), name);
      expect(met).toBe(false);
      expect(seen).toStartWith(`not found as /no/shims/${name}.so or /`);
      expect(fix).toContain("ZAP_LIB_DIR");
    }
  });
});

test("default is always usable", async () => {
  expect(await probeDefault(madeUpHost())).toEqual({
    name: "default",
    built: true,
    available: true,
    wire: "sockets",
    memory: "heap",
    device: null,
    caps: { gpuResident: false, zeroCopy: false, minLatencyMicros: 15 },
    prerequisites: [{ name: "Bun sockets", met: true, seen: `Bun ${Bun.version}`, fix: "" }],
  });
});

describe("uma", () => {
  test("has no memory where there is no GPU", async () => {
    const row = await probeUma(madeUpHost());
    expect(row).toMatchObject({ wire: "sockets", memory: "none", device: null });
    expect(missing(row)).toEqual(["libzap_uma_cuda", "GPU"]);
  });

  test("finds CUDA and names the GPUs", async () => {
    const one = await probeUma(madeUpHost(made.nvidia));
    expect(one).toMatchObject({ memory: "cuda", device: "NVIDIA H200" });
    expect(missing(one)).toEqual(["libzap_uma_cuda"]);
    const two = await probeUma(madeUpHost({ ...made.nvidia, "/dev/nvidia1": "" }));
    expect(two.device).toBe("2 × NVIDIA H200");
  });

  test("finds the GPU that Windows lends to WSL", async () => {
    const row = await probeUma(madeUpHost({ "/dev/dxg": "", "/usr/lib/wsl/lib/libcuda.so.1": elf() }));
    expect(row).toMatchObject({ memory: "cuda", device: "NVIDIA GPU" });
    expect(the(row, "libcuda.so.1").seen).toEndWith("/usr/lib/wsl/lib/libcuda.so.1");
  });

  test("finds HIP and names the GPU by its architecture", async () => {
    const row = await probeUma(madeUpHost(made.amd));
    expect(row).toMatchObject({ memory: "hip", device: "AMD gfx90a" });
    expect(missing(row)).toEqual(["libzap_uma_hip"]);
  });

  test("does not count a compute driver without a GPU", async () => {
    const { "/sys/class/kfd/kfd/topology/nodes/1/gpu_id": _, ...files } = made.amd;
    const row = await probeUma(madeUpHost(files));
    expect(row).toMatchObject({ memory: "hip", device: null });
    expect(the(row, "GPU").seen).toStartWith("/dev/kfd is there");
    const unnamed = { ...made.amd, "/sys/class/kfd/kfd/topology/nodes/1/properties": "" };
    expect((await probeUma(madeUpHost(unnamed))).device).toBe("AMD GPU");
  });

  test("prefers the vendor that is complete", async () => {
    const { "/usr/lib/x86_64-linux-gnu/libcuda.so.1": _, ...withoutLibrary } = made.nvidia;
    expect((await probeUma(madeUpHost({ ...withoutLibrary, ...made.amd }))).memory).toBe("hip");
    expect((await probeUma(madeUpHost({ ...made.nvidia, ...made.amd }))).memory).toBe("cuda");
    expect((await probeUma(madeUpHost(withoutLibrary))).memory).toBe("cuda");
  });

  test("says how to get a driver for a GPU that has none", async () => {
    const card = pciDevice("0000:17:00.0", { class: "0x030200", vendor: "0x10de" });
    const bare = await probeUma(madeUpHost({ ...card, ...made.debian }));
    expect(the(bare, "GPU").seen).toContain("0000:17:00.0");
    expect(the(bare, "GPU").fix).toEndWith("\nsudo apt-get install nvidia-driver libcuda1");
    const installed = await probeUma(madeUpHost({ ...card, "/usr/lib/libcuda.so.1": elf() }));
    expect(the(installed, "GPU").fix).toBe("sudo modprobe nvidia");
    const radeon = pciDevice("0000:03:00.0", { class: "0x030000", vendor: "0x1002" });
    const row = await probeUma(madeUpHost(radeon));
    expect(row.memory).toBe("hip");
    expect(the(row, "GPU").fix).toBe("sudo modprobe amdgpu");
  });

  test("sees a container that was not handed the GPU", async () => {
    const { "/dev/nvidia0": _, ...files } = made.nvidia;
    const row = await probeUma(madeUpHost(files));
    expect(row).toMatchObject({ memory: "cuda", device: null });
    expect(the(row, "GPU").seen).toContain("driver 570.86.15 is loaded");
    expect(the(row, "GPU").fix).toContain("--gpus all");
  });

  test("takes Metal on Apple silicon, and only there", async () => {
    const framework = { "/System/Library/Frameworks/Metal.framework/Metal": "" };
    const mac = { platform: "darwin", arch: "arm64", cpu: "Apple M4" } as const;
    const silicon = await probeUma(madeUpHost(framework, mac));
    expect(silicon).toMatchObject({ memory: "metal", device: "Apple M4" });
    expect(missing(silicon)).toEqual(["libzap_uma_metal"]);
    const intel = await probeUma(madeUpHost(framework, { ...mac, arch: "x64", cpu: "Intel" }));
    expect(intel.device).toBeNull();
    expect(missing(intel)).toContain("Apple silicon");
    expect(missing(await probeUma(madeUpHost({}, mac)))).toContain("Metal.framework");
  });

  test("says on other systems what it needs", async () => {
    const row = await probeUma(madeUpHost({}, { platform: "win32" }));
    expect(the(row, "platform").seen).toBe("this is win32-x64, needed is Linux or macOS");
  });

  test.skipIf(noCompiler)("loads its shim only where nothing is missing among the files", async () => {
    const marker = join(temporary(), "loaded");
    const more = `__attribute__((constructor)) static void loaded(void) { fclose(fopen("${marker}", "w")); }`;
    const env = { ZAP_LIB_DIR: standIn("libzap_uma_cuda", { more }) };
    const { "/dev/nvidia0": _, ...files } = made.nvidia;
    const unreachable = await probeUma(madeUpHost(files, { env }));
    expect(missing(unreachable)).toEqual(["GPU"]);
    expect(existsSync(marker)).toBe(false);
    const reachable = await probeUma(madeUpHost(made.nvidia, { env }));
    expect(missing(reachable)).toEqual([]);
    expect(existsSync(marker)).toBe(true);
  });
});

function isAdvice({ name }: Prerequisite): boolean {
  return name === "isolated CPUs" || name === "GPU registration";
}

describe("dpdk", () => {
  const FIX = "echo 1024 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

  test("misses everything on an empty host", async () => {
    const row = await probeDpdk(madeUpHost());
    expect(row).toMatchObject({ wire: "dpdk", memory: "hugepages", device: null });
    expect(missing(row)).toEqual(["libzap_dpdk", "hugepages", "libdpdk", "port", "address"]);
  });

  test("sees hugepages that are configured and free", async () => {
    const row = await probeDpdk(madeUpHost(made.dpdk));
    const free = "1000 of 1024 pages of 2 MiB free, 0 of 0 pages of 1 GiB free";
    expect(the(row, "hugepages").seen).toBe(`${free}; not mounted, which is not needed`);
    const mounts = { "/proc/mounts": "none /sys sysfs rw 0 0\nhuge /dev/hugepages hugetlbfs rw 0 0\n" };
    const mounted = await probeDpdk(madeUpHost({ ...made.dpdk, ...mounts }));
    expect(the(mounted, "hugepages").seen).toBe(`${free}; mounted on /dev/hugepages`);
    expect(row.device).toBe("0000:03:00.0");
    expect(the(row, "port").seen).toBe("0000:03:00.0 (vfio-pci)");
    expect(the(row, "libdpdk").seen).toEndWith("/librte_eal.so.23");
  });

  test("proposes hugepages where there are none", async () => {
    expect(the(await probeDpdk(madeUpHost(pages(2048, 0, 0))), "hugepages")).toMatchObject({
      met: false,
      fix: FIX,
    });
  });

  test("proposes more of them where all are taken, or too few are left", async () => {
    const taken = the(await probeDpdk(madeUpHost(pages(2048, 512, 0))), "hugepages");
    expect(taken.met).toBe(false);
    expect(taken.seen).toStartWith("0 of 512 pages of 2 MiB free; needed: 136 MiB free");
    expect(taken.fix).toBe(FIX.replace("1024", "1536"));
    expect(the(await probeDpdk(madeUpHost(pages(2048, 512, 67))), "hugepages").met).toBe(false);
    expect(the(await probeDpdk(madeUpHost(pages(2048, 512, 68))), "hugepages").met).toBe(true);
    expect(the(await probeDpdk(madeUpHost(pages(1024 * 1024, 1, 1))), "hugepages").met).toBe(true);
  });

  test("asks for as many as the settings take", async () => {
    const ask = async (free: number, env: Record<string, string>) =>
      the(await probeDpdk(madeUpHost(pages(2048, 512, free), { env })), "hugepages").met;
    const env = { ZAP_DPDK_REGION_BYTES: String(200 * 2 ** 20), ZAP_DPDK_MEMORY_MIB: "100" };
    expect([await ask(149, env), await ask(150, env)]).toEqual([false, true]);
  });

  test("proposes another size where the kernel has no 2 MiB pages", async () => {
    const { fix } = the(await probeDpdk(madeUpHost(pages(524288, 0, 0))), "hugepages");
    expect(fix).toBe("echo 4 | sudo tee /sys/kernel/mm/hugepages/hugepages-524288kB/nr_hugepages");
  });

  test("survives a /sys that makes no sense", async () => {
    const folder = "/sys/kernel/mm/hugepages";
    const files = {
      [`${folder}/hugepages-2048kB/nr_hugepages`]: "many",
      [`${folder}/other`]: "",
      "/sys/bus/pci": "",
    };
    expect(the(await probeDpdk(madeUpHost(files)), "hugepages").seen).toStartWith("0 of 0 pages of 2 MiB");
  });

  const busy = pciDevice("0000:01:00.0", {
    class: "0x020000",
    vendor: "0x8086",
    driver: "ice",
    net: { ens1: "up" },
  });
  const spare = pciDevice("0000:02:00.0", {
    class: "0x020000",
    vendor: "0x8086",
    driver: "ice",
    net: { ens2: "down" },
  });

  test("names the network device that can be spared, and never one that carries traffic", async () => {
    const both = the(await probeDpdk(madeUpHost({ ...busy, ...spare })), "port");
    expect(both.fix).toBe("sudo modprobe vfio-pci\nsudo dpdk-devbind.py --bind=vfio-pci 0000:02:00.0");
    const only = the(await probeDpdk(madeUpHost({ ...busy, "/sys/module/vfio_pci/refcnt": "0" })), "port");
    expect(only.fix).toStartWith("sudo dpdk-devbind.py --bind=vfio-pci <PCI address>\n");
    expect(only.fix).not.toContain("0000:01:00.0");
  });

  test("knows the interface of a virtio device, one level deeper", async () => {
    const folder = "/sys/bus/pci/devices/0000:00:03.0";
    const virtio = {
      ...pciDevice("0000:00:03.0", { class: "0x020000", vendor: "0x1af4", driver: "virtio-pci" }),
      [`${folder}/virtio1/net/eth0/operstate`]: "up",
      "/sys/class/net/eth0/operstate": "up\n",
    };
    expect(the(await probeDpdk(madeUpHost(virtio)), "port").fix).toContain("<PCI address>");
  });

  test("does not take a GPU that was handed to a virtual machine for a port", async () => {
    const gpu = pciDevice("0000:17:00.0", { class: "0x030200", vendor: "0x10de", driver: "vfio-pci" });
    const row = await probeDpdk(madeUpHost(gpu));
    expect(the(row, "port").met).toBe(false);
    expect(row.device).toBeNull();
  });

  test("leaves a ConnectX with its own driver", async () => {
    const card = pciDevice("0000:05:00.0", {
      class: "0x020000",
      vendor: "0x15b3",
      driver: "mlx5_core",
      net: { ens3: "up" },
    });
    expect(the(await probeDpdk(madeUpHost(card)), "port").seen).toBe("0000:05:00.0 (mlx5_core)");
  });

  test("takes a software device from ZAP_DPDK_VDEV", async () => {
    const row = await probeDpdk(madeUpHost({}, { env: { ZAP_DPDK_VDEV: " net_memif0,role=client " } }));
    expect(row.device).toBe("net_memif0");
    expect(the(row, "port").seen).toBe("ZAP_DPDK_VDEV=net_memif0,role=client");
    const wrong = await probeDpdk(madeUpHost(made.dpdk, { env: { ZAP_DPDK_VDEV: "eth0" } }));
    expect(wrong.device).toBeNull();
    expect(the(wrong, "port")).toMatchObject({ met: false, fix: "export ZAP_DPDK_VDEV=net_memif0" });
  });

  test("asks for no hugepages where nobody wants any, and says what the address is", async () => {
    const env = { ZAP_DPDK_HUGEPAGES: "no", ZAP_DPDK_ADDRESS: "10.0.0.1/24" };
    const row = await probeDpdk(madeUpHost({}, { env }));
    expect(the(row, "hugepages")).toMatchObject({ met: true, seen: "not asked for: ZAP_DPDK_HUGEPAGES" });
    expect(the(row, "address")).toMatchObject({ met: true, seen: "10.0.0.1/24" });
  });

  test("takes the card that ZAP_DPDK_PCI names, and no other", async () => {
    const ask = async (address: string) =>
      probeDpdk(madeUpHost({ ...made.dpdk, ...busy, ...spare }, { env: { ZAP_DPDK_PCI: address } }));
    const ready = await ask("0000:03:00.0");
    expect(ready.device).toBe("0000:03:00.0");
    expect(the(ready, "port")).toMatchObject({ met: true, seen: "0000:03:00.0 (vfio-pci)" });
    const unbound = await ask("0000:02:00.0");
    expect(unbound.device).toBeNull();
    expect(the(unbound, "port").fix).toEndWith("sudo dpdk-devbind.py --bind=vfio-pci 0000:02:00.0");
    const taken = the(await ask("0000:01:00.0"), "port");
    expect(taken.seen).toContain("in use as ens1");
    expect(taken.fix).not.toContain("--bind");
    expect(the(await ask("0000:09:00.0"), "port").seen).toContain("no such network card");
  });

  test("says who may use the port", async () => {
    const card = await probeDpdk(madeUpHost(made.dpdk));
    expect(the(card, "permission")).toMatchObject({
      met: true,
      seen: "/dev/vfio/12 can be opened for reading and writing",
    });
    const { "/dev/vfio/12": _, ...closed } = made.dpdk;
    const without = the(await probeDpdk(madeUpHost(closed)), "permission");
    expect(without).toMatchObject({
      met: false,
      seen: "/dev/vfio/12 does not exist",
      fix: "sudo modprobe vfio-pci",
    });
    const status = (bits: string): Files => ({ "/proc/self/status": `Name:\tbun\nCapEff:\t${bits}\n` });
    const ask = async (vdev: string, files: Files) =>
      the(await probeDpdk(madeUpHost(files, { env: { ZAP_DPDK_VDEV: vdev } })), "permission");
    expect(await ask("net_memif0", status("0000000000000000"))).toMatchObject({ met: true });
    const packets = "net_af_packet0,iface=eth0";
    expect(await ask(packets, status("0000000000002000"))).toMatchObject({ met: true, seen: "CAP_NET_RAW" });
    const refused = await ask(packets, status("0000000000001000"));
    expect(refused).toMatchObject({ met: false });
    expect(refused.seen).toBe("this process lacks CAP_NET_RAW, which net_af_packet0 needs");
    expect(refused.fix).toContain("setcap cap_net_raw+ep");
  });

  test("advises on CPUs and GPUs, without asking for them", async () => {
    const plain = await probeDpdk(madeUpHost());
    expect(the(plain, "isolated CPUs").seen).toStartWith("none, which is no must");
    expect(the(plain, "GPU registration").seen).toStartWith("not possible: no driver of a GPU");
    const folder = "/sys/devices/system/cpu";
    const cpus = { [`${folder}/isolated`]: "2-3\n", [`${folder}/nohz_full`]: "(null)\n" };
    const rich = await probeDpdk(madeUpHost({ ...made.nvidia, ...cpus }));
    expect(the(rich, "isolated CPUs").seen).toBe("isolcpus 2-3, nohz_full none");
    expect(the(rich, "GPU registration").seen).toBe("by cuMemHostRegister, driver 570.86.15");
    const { "/dev/nvidia0": _, ...hidden } = made.nvidia;
    expect(the(await probeDpdk(madeUpHost(hidden)), "GPU registration").seen).toContain("no /dev/nvidia0");
    expect(the(await probeDpdk(madeUpHost(made.amd)), "GPU registration").seen).toBe("by hipHostRegister");
    expect([...plain.prerequisites, ...rich.prerequisites].filter(isAdvice).every(({ met }) => met)).toBe(
      true,
    );
  });

  test("says on other systems that it needs Linux", async () => {
    const row = await probeDpdk(madeUpHost({}, { platform: "darwin", arch: "arm64" }));
    expect(missing(row)).toEqual(["platform"]);
    expect(the(row, "platform").seen).toBe("this is darwin-arm64, needed is Linux");
  });
});

describe("gpudirect", () => {
  const registration = "GPU memory registration";

  test("misses everything on an empty host", async () => {
    const row = await probeGpudirect(madeUpHost());
    expect(row).toMatchObject({ wire: "verbs", memory: "cuda", device: null });
    expect(missing(row)).toEqual([
      "libzap_gpudirect",
      "RDMA device",
      "libibverbs.so.1",
      "libcuda.so.1",
      "GPU",
      registration,
    ]);
  });

  test("names both devices", async () => {
    const row = await probeGpudirect(madeUpHost({ ...made.nvidia, ...made.rdma }));
    expect(row.device).toBe("mlx5_0 + NVIDIA H200");
    expect(the(row, "RDMA device").seen).toBe("mlx5_0 (ACTIVE)");
    expect((await probeGpudirect(madeUpHost(made.rdma))).device).toBe("mlx5_0");
  });

  test("needs nvidia_peermem or dma-buf, either of them", async () => {
    const old = { ...made.nvidia, "/proc/sys/kernel/osrelease": "5.4.0-150-generic\n" };
    const without = the(await probeGpudirect(madeUpHost({ ...old, ...made.rdma })), registration);
    expect(without).toMatchObject({ met: false, fix: "sudo modprobe nvidia-peermem" });
    expect(without.seen).toContain("here: open driver 570.86.15, kernel 5.4");

    for (const loaded of [
      { "/sys/module/nvidia_peermem/refcnt": "0" },
      { "/proc/modules": "ext4 1 0 - Live 0x0\nnvidia_peermem 16384 0 - Live 0x0\n" },
      { "/sys/module/nv_peer_mem/refcnt": "0" },
    ]) {
      expect(the(await probeGpudirect(madeUpHost({ ...old, ...loaded })), registration).met).toBe(true);
    }
    const dmaBuf = the(await probeGpudirect(madeUpHost({ ...made.nvidia, ...made.rdma })), registration);
    expect(dmaBuf.seen).toBe(
      "dma-buf: open NVIDIA driver 570.86.15, kernel 6.8; by the host's files, as nothing could be registered",
    );
  });

  test("does not count a closed driver for dma-buf", async () => {
    const version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n";
    const files = { ...made.nvidia, "/proc/driver/nvidia/version": version };
    const row = the(await probeGpudirect(madeUpHost(files)), registration);
    expect(row.met).toBe(false);
    expect(row.seen).toContain("closed driver 535.183.01");
  });

  test("tells a card whose link is down from one that is not there", async () => {
    const down = { ...made.rdma, "/sys/class/infiniband/mlx5_0/ports/1/state": "1: DOWN\n" };
    const row = await probeGpudirect(madeUpHost(down));
    expect(the(row, "RDMA device").seen).toBe("mlx5_0 (DOWN); needed is one with an ACTIVE port");
    expect(the(row, "RDMA device").fix).toStartWith("sudo ip link set ens1np0 up\n");
    expect(row.device).toBeNull();
    const card = pciDevice("0000:05:00.0", { class: "0x020000", vendor: "0x15b3", driver: "mlx5_core" });
    expect(the(await probeGpudirect(madeUpHost(card)), "RDMA device").fix).toBe("sudo modprobe mlx5_ib");
    expect(the(await probeGpudirect(madeUpHost()), "RDMA device").fix).toContain("ConnectX-6");
  });

  test("installs in the words of the distribution", async () => {
    const commands: Record<string, string> = {
      "ID=debian": "sudo apt-get install libibverbs1 ibverbs-providers",
      "ID=ubuntu\nID_LIKE=debian": "sudo apt-get install libibverbs1 ibverbs-providers",
      'ID="rocky"\nID_LIKE="rhel centos fedora"': "sudo dnf install libibverbs",
      'ID="opensuse-leap"\nID_LIKE="suse opensuse"': "sudo zypper install libibverbs1",
      "ID=arch": "sudo pacman -S rdma-core",
      "ID=plan9": "Install the package of your system that brings libibverbs.so.1.",
    };
    for (const [release, command] of Object.entries(commands)) {
      const row = await probeGpudirect(madeUpHost({ "/etc/os-release": `${release}\n` }));
      expect(the(row, "libibverbs.so.1").fix).toBe(command);
    }
    const ubuntu = await probeGpudirect(madeUpHost({ "/etc/os-release": "ID=ubuntu\nID_LIKE=debian\n" }));
    expect(the(ubuntu, "libcuda.so.1").fix).toBe("sudo ubuntu-drivers install");
  });
});
