/** `uma`: Bun's sockets over memory that CPU and GPU share, from CUDA, HIP or Metal. */
import type { Prerequisite, Probe } from "../contract.ts";
import * as hosts from "../host.ts";
import type { Host } from "../host.ts";
import { cudaDevice, cudaPrerequisites, LIBCUDA, nvidiaOnPci } from "./cuda.ts";
import { install } from "./packages.ts";
import { dataPlane, met, missing, platformNeeded, row, shim } from "./prerequisite.ts";

const LIBHIP = "libamdhip64.so";
const METAL = "/System/Library/Frameworks/Metal.framework";
const common = { name: "uma", wire: "sockets" } as const;

export async function probeUma(host: Host): Promise<Probe> {
  if (host.platform === "darwin") return metal(host);
  if (host.platform !== "linux") {
    const library = [dataPlane("uma")];
    return row({
      ...common,
      memory: "none",
      device: null,
      library,
      host: [platformNeeded(host, "Linux or macOS")],
    });
  }
  switch (kind(host)) {
    case "cuda":
      return row({
        ...common,
        memory: "cuda",
        device: cudaDevice(host),
        library: [dataPlane("uma"), shim(host, "libzap_uma_cuda")],
        host: cudaPrerequisites(host),
      });
    case "hip":
      return row({
        ...common,
        memory: "hip",
        device: hipDevice(host),
        library: [dataPlane("uma"), shim(host, "libzap_uma_hip")],
        host: hipPrerequisites(host),
      });
    case "none":
      return row({
        ...common,
        memory: "none",
        device: null,
        library: [dataPlane("uma"), shim(host, "libzap_uma_cuda")],
        host: [
          missing(
            "GPU",
            `neither /dev/nvidia0 nor /dev/kfd, no NVIDIA or AMD GPU on the PCI bus, and neither ${LIBCUDA} nor ${LIBHIP} installed`,
            "Needs a machine with an NVIDIA or AMD GPU, or a container that was handed one.",
          ),
        ],
      });
  }
}

/** Which vendor's memory this host comes closest to: one that is complete, else the first of which there is any sign. */
function kind(host: Host): "cuda" | "hip" | "none" {
  if (complete(cudaPrerequisites(host))) return "cuda";
  if (complete(hipPrerequisites(host))) return "hip";
  if (hosts.nvidiaDriver(host) || cudaDevice(host) || nvidiaOnPci(host).length > 0) return "cuda";
  if (hipDevice(host) || amdOnPci(host).length > 0) return "hip";
  if (hosts.library(host, LIBCUDA)) return "cuda";
  return hosts.library(host, `${LIBHIP}*`) ? "hip" : "none";
}

function complete(prerequisites: readonly Prerequisite[]): boolean {
  return prerequisites.every((prerequisite) => prerequisite.met);
}

function hipPrerequisites(host: Host): Prerequisite[] {
  const runtime = hosts.library(host, `${LIBHIP}*`);
  return [
    runtime !== null
      ? met(LIBHIP, runtime)
      : missing(LIBHIP, "not installed; it comes with ROCm's HIP runtime", ...install(host, LIBHIP)),
    amdGpu(host),
  ];
}

function amdGpu(host: Host): Prerequisite {
  const device = hipDevice(host);
  if (device !== null) return met("GPU", `${device} (/dev/kfd)`);
  if (hosts.exists(host, "/dev/kfd")) {
    return missing(
      "GPU",
      "/dev/kfd is there, but it reports no GPU that can compute",
      "Needs a GPU that ROCm supports.",
    );
  }
  const address = amdOnPci(host)[0];
  return address !== undefined
    ? missing("GPU", `no /dev/kfd for the AMD GPU at ${address}`, "sudo modprobe amdgpu")
    : missing(
        "GPU",
        "no /dev/kfd, and no AMD GPU on the PCI bus",
        "Needs a machine with an AMD GPU, or a container that was handed one.",
      );
}

function hipDevice(host: Host): string | null {
  const [first, ...more] = hosts.amdGpus(host);
  if (first === undefined) return null;
  return more.length === 0 ? first : `${more.length + 1} × ${first}`;
}

function amdOnPci(host: Host): string[] {
  return [...hosts.pciDevices(host, hosts.PCI_DISPLAY), ...hosts.pciDevices(host, hosts.PCI_ACCELERATOR)]
    .filter((device) => device.vendor === hosts.VENDOR_AMD)
    .map((device) => device.address);
}

function metal(host: Host): Probe {
  const silicon = host.arch === "arm64";
  const framework = hosts.exists(host, METAL);
  return row({
    ...common,
    memory: framework ? "metal" : "none",
    device: silicon && framework ? (host.cpu ?? "Apple GPU") : null,
    library: [dataPlane("uma"), shim(host, "libzap_uma_metal")],
    host: [
      silicon
        ? met("Apple silicon", host.cpu ?? "arm64")
        : missing(
            "Apple silicon",
            `this is ${host.arch}, whose GPU has a memory of its own`,
            "Needs a Mac with an M1 or later, and Bun for arm64 on it.",
          ),
      framework
        ? met("Metal.framework", METAL)
        : missing("Metal.framework", `not at ${METAL}`, "Needs macOS 11 or later."),
    ],
  });
}
