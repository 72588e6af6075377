/** Rows for `zap-info` to show: of a host that can run everything, and of one that can run `default` only. */
import { SCHEMES, type BackendReport, type Probe } from "../../lib/index.ts";

const COMMAND = "echo 1024 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages # to the end";

const fallback: Probe = {
  ...{ name: "default", built: true, available: true, wire: "sockets", memory: "heap", device: null },
  caps: { gpuResident: false, zeroCopy: false, minLatencyMicros: 15 },
  prerequisites: [{ name: "Bun sockets", met: true, seen: "Bun", fix: "" }],
};

export const rich: readonly Probe[] = [
  {
    ...{ name: "gpudirect", built: true, available: true, wire: "verbs", memory: "cuda" },
    device: "mlx5_0 + 8 × NVIDIA RTX PRO 6000 Blackwell-Server-Edition",
    caps: { gpuResident: true, zeroCopy: true, minLatencyMicros: 2 },
    prerequisites: [{ name: "GPU", met: true, seen: "one", fix: "" }],
  },
  {
    ...{ name: "dpdk", built: true, available: true, wire: "dpdk", memory: "hugepages" },
    device: "0000:03:00.0",
    caps: { gpuResident: false, zeroCopy: true, minLatencyMicros: 0.5 },
    prerequisites: [],
  },
  {
    ...{
      name: "uma",
      built: true,
      available: true,
      wire: "sockets",
      memory: "metal",
      device: "Apple M4 Max",
    },
    caps: { gpuResident: true, zeroCopy: false, minLatencyMicros: 12345.678 },
    prerequisites: [],
  },
  fallback,
];

export const poor: readonly Probe[] = [
  {
    ...{
      name: "gpudirect",
      built: false,
      available: false,
      wire: "verbs",
      memory: "cuda",
      device: null,
      caps: null,
    },
    prerequisites: [
      { name: "probe", met: false, seen: "looking at this host failed: EIO", fix: "Please report this." },
    ],
  },
  {
    ...{
      name: "dpdk",
      built: true,
      available: false,
      wire: "dpdk",
      memory: "hugepages",
      device: null,
      caps: null,
    },
    prerequisites: [
      { name: "libdpdk", met: true, seen: "/usr/lib/librte_eal.so.23", fix: "" },
      { name: "port", met: true, seen: "0000:03:00.0 (vfio-pci)", fix: "" },
      {
        name: "hugepages",
        met: false,
        seen: "0 of 1024 pages of 2 MiB free, 0 of 0 pages of 1 GiB free; needed: 64 MiB free in one size",
        fix: `Take away as many as other programs can spare, since they too may want some of them:\n${COMMAND}`,
      },
    ],
  },
  {
    ...{
      name: "uma",
      built: false,
      available: false,
      wire: "sockets",
      memory: "none",
      device: null,
      caps: null,
    },
    prerequisites: [
      {
        name: "libzap_uma_cuda",
        met: false,
        seen: `not found as /${"a-very-long-folder-name-".repeat(8)}/libzap_uma_cuda.so`,
        fix: "Let ZAP_LIB_DIR name its folder.",
      },
    ],
  },
  fallback,
];

export const commands: readonly string[] = [COMMAND];

/** A GPU that serves one scheme, and a CPU that serves them all. */
export const verifiers: readonly BackendReport[] = [
  {
    name: "cuda",
    available: true,
    leastItems: null,
    schemes: SCHEMES.map((scheme) => ({
      scheme,
      served: scheme === "ed25519",
      reason: scheme === "ed25519" ? "" : `no kernel for ${scheme} yet`,
    })),
  },
  {
    name: "cpu",
    available: true,
    leastItems: null,
    schemes: SCHEMES.map((scheme) => ({ scheme, served: true, reason: "" })),
  },
];

/** The same without the GPU. */
export const cpuAlone: readonly BackendReport[] = verifiers.map((each) =>
  each.name === "cpu"
    ? each
    : {
        ...each,
        available: false,
        schemes: each.schemes.map(({ scheme, reason }) => ({
          scheme,
          served: false,
          reason: reason || "the driver is not here: install it",
        })),
      },
);
