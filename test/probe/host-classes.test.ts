/**
 * The classes of hosts that the library is for: what each probe says there, and what `pick` resolves to. The hosts are made up and
 * their GPUs are doubles, but the shims are the real ones.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Probe, TransportName } from "../../lib/transport/contract.ts";
import { registered, probeRows } from "../../lib/transport/probe.ts";
import { REGISTRY } from "../../lib/transport/registry.ts";
import { UMA_CAPS } from "../../lib/transport/probes/uma.ts";
import { resolveSelection } from "../../lib/transport/resolve.ts";
import { DoubleHost, type Vendor } from "../support/double-host.ts";
import { noNative, theNative } from "../support/native.ts";
import * as made from "./made-up-host.ts";

afterAll(made.forgetHosts);

interface HostClass {
  readonly name: string;
  readonly host: () => Parameters<typeof probeRows>[0];
  /** What `pick` resolves to. */
  readonly picks: TransportName;
  readonly memory: string;
  /** What the device itself says: its row, and the row of its memory. */
  readonly device?: string;
  readonly unified?: string;
  /** What keeps `gpudirect` and `dpdk` from being used. */
  readonly gpudirect: readonly string[];
  readonly dpdk: readonly string[];
}

const HUGE = made.pages(2048, 0, 0);
/** The shims of these tests are built as packages are: without DPDK. */
const NO_DPDK = "DPDK in libzap_dpdk";
const NO_PORT = [NO_DPDK, "hugepages", "libdpdk", "port", "address"];

const CLASSES: readonly HostClass[] = [
  {
    name: "GB10 with no HCA visible",
    host: () =>
      double(
        "cuda",
        { name: "NVIDIA GB10", ...capability(12, 1), ...attributes({ 18: 1, 116: 0, 124: 0 }) },
        HUGE,
      ),
    picks: "uma",
    memory: "cuda",
    device: "NVIDIA GB10 (0 of 1), compute capability 12.1",
    unified: "managed, for CPU and GPU at once",
    gpudirect: ["RDMA device", "libibverbs.so.1"],
    dpdk: NO_PORT,
  },
  {
    name: "DGX with CX-7 and nvidia-peermem",
    host: () =>
      double(
        "cuda",
        { name: "NVIDIA H200", devices: 8, ...capability(9, 0), ...attributes({ 116: 1, 124: 1 }) },
        {
          ...HUGE,
          ...made.rdma,
          "/usr/lib/libibverbs.so.1": made.elf(process.arch === "arm64" ? 183 : 62),
          "/sys/module/nvidia_peermem/refcnt": "0\n",
          ...made.pciDevice("0000:05:00.0", {
            class: "0x020700",
            vendor: "0x15b3",
            driver: "mlx5_core",
            net: { ens1np0: "up" },
          }),
        },
      ),
    // The table has GPUDirect here: everything that the host has to bring is there, but a library that is more than its header.
    picks: "uma",
    memory: "cuda",
    device: "NVIDIA H200 (0 of 8), compute capability 9.0",
    unified: "managed, for CPU and GPU at once",
    gpudirect: ["ibverbs"],
    dpdk: [NO_DPDK, "hugepages", "libdpdk", "address"],
  },
  {
    name: "generic CUDA box, no IB",
    host: () => double("cuda", { name: "NVIDIA RTX", ...capability(8, 9), ...attributes({ 116: 0 }) }, HUGE),
    picks: "uma",
    memory: "cuda",
    device: "NVIDIA RTX (0 of 1), compute capability 8.9",
    unified: "managed, for CPU and GPU at once",
    gpudirect: ["RDMA device", "libibverbs.so.1"],
    dpdk: NO_PORT,
  },
  {
    name: "generic CUDA box without concurrent managed access, as inside WSL",
    host: () => double("cuda", { name: "NVIDIA RTX", ...capability(8, 6), ...attributes({ 89: 0 }) }, HUGE),
    picks: "uma",
    memory: "cuda",
    device: "NVIDIA RTX (0 of 1), compute capability 8.6",
    unified: "page-locked host memory: no managed memory for CPU and GPU at once",
    gpudirect: ["RDMA device", "libibverbs.so.1"],
    dpdk: NO_PORT,
  },
  {
    name: "Apple Silicon developer workstation",
    host: () => double("metal", { name: "Apple M4" }),
    picks: "uma",
    memory: "metal",
    device: "Apple M4",
    unified: "shared buffers, for CPU and GPU at once",
    gpudirect: ["platform"],
    dpdk: ["platform"],
  },
  {
    name: "Linux box with an AMD GPU",
    host: () => double("hip", { name: "AMD Instinct" }, HUGE),
    picks: "uma",
    memory: "hip",
    device: "AMD Instinct (0 of 1)",
    unified: "managed, for CPU and GPU at once",
    gpudirect: ["RDMA device", "libibverbs.so.1", "GPU memory registration"],
    dpdk: NO_PORT,
  },
  {
    name: "Linux host without CUDA",
    host: () => made.madeUpHost(HUGE, { env: { ZAP_LIB_DIR: theNative().shims } }),
    picks: "default",
    memory: "none",
    gpudirect: ["RDMA device", "libibverbs.so.1", "libcuda.so.1", "GPU", "GPU memory registration"],
    dpdk: NO_PORT,
  },
];

function double(vendor: Vendor, behaviour: Record<string, string | number>, files: made.Files = {}) {
  return new DoubleHost(vendor, behaviour, files).host;
}

function attributes(values: Readonly<Record<number, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(values).map(([number, value]) => [`attribute.${number}`, value]));
}

/** Compute capability: attributes 75 and 76. */
function capability(major: number, minor: number): Record<string, number> {
  return attributes({ 75: major, 76: minor });
}

function missing(probe: Probe | undefined): string[] {
  return (probe?.prerequisites ?? []).filter(({ met }) => !met).map(({ name }) => name);
}

describe.skipIf(noNative || process.platform !== "linux")("host class:", () => {
  for (const { name, host, picks, memory, device, unified, gpudirect, dpdk } of CLASSES) {
    test(name, async () => {
      const where = host();
      const probes = await probeRows(where);
      const [first, second, uma, last] = probes;
      expect(probes.map((probe) => probe.name)).toEqual(["gpudirect", "dpdk", "uma", "default"]);
      expect(missing(first)).toEqual([...gpudirect]);
      expect(missing(second)).toEqual([...dpdk]);
      expect(last?.available).toBe(true);

      expect(uma?.memory).toBe(memory);
      if (picks === "uma") {
        expect(missing(uma)).toEqual([]);
        expect(uma).toMatchObject({ built: true, available: true, wire: "sockets", caps: UMA_CAPS });
        const seen = (ending: string) => uma?.prerequisites.find((each) => each.name.endsWith(ending))?.seen;
        expect(seen(" device")).toBe(device!);
        expect(seen("unified memory")).toBe(unified!);
      } else {
        expect(missing(uma)).toEqual(["GPU"]);
        expect(uma).toMatchObject({ built: true, available: false, caps: null });
      }

      const selection = await resolveSelection(undefined, { env: {}, probes });
      expect(selection.name).toBe(picks);
      expect(registered(where.platform)).toContain(picks);
      // And that can really be opened there.
      await using transport = await REGISTRY[picks].open!({ onEvent: () => {} }, selection, where);
      expect(transport.name).toBe(picks);
      expect(transport.caps).toEqual(probes.find((probe) => probe.name === picks)!.caps!);
      // Who asks for more than there is gets the same, and a reason; who insists gets an error that names what is missing.
      expect((await resolveSelection("gpudirect", { env: {}, probes })).name).toBe(picks);
      const insisting = resolveSelection("gpudirect", { env: {}, probes, strict: true });
      await expect(insisting).rejects.toMatchObject({ code: "ERR_ZAP_NOT_AVAILABLE" });
    });
  }

  test("a driver in a folder that LD_LIBRARY_PATH names is found there, and before any other", async () => {
    const on = new DoubleHost("cuda", { name: "Usual" }, {}, { LD_LIBRARY_PATH: "/opt/vendor" });
    const folder = join(on.host.root, "opt", "vendor");
    mkdirSync(folder, { recursive: true });
    copyFileSync(join(theNative().doubles, "libcuda.so.1"), join(folder, "libcuda.so.1"));
    writeFileSync(join(folder, "double.conf"), "name=Named By The Variable\n");
    const uma = (await probeRows(on.host)).find((probe) => probe.name === "uma");
    expect(uma?.available).toBe(true);
    const seen = uma?.prerequisites.map((each) => each.seen).join("\n");
    expect(seen).toContain(join(folder, "libcuda.so.1"));
    expect(seen).toContain("Named By The Variable (0 of 1)");
    const selection = await resolveSelection(undefined, { env: {}, probes: uma === undefined ? [] : [uma] });
    await using transport = await REGISTRY.uma.open!({ onEvent: () => {} }, selection, on.host);
    expect(transport.name).toBe("uma");
  });
});
