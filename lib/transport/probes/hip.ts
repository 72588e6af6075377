/** What memory of AMD's HIP asks of the host. */
import type { Prerequisite } from "../contract.ts";
import * as hosts from "../host.ts";
import type { Host } from "../host.ts";
import { install } from "./packages.ts";
import { met, missing, vendorLibrary } from "./prerequisite.ts";

export const LIBHIP = "libamdhip64.so";

export function hipPrerequisites(host: Host): Prerequisite[] {
  const runtime = hosts.library(host, `${LIBHIP}*`);
  const absent = "not installed; it comes with ROCm's HIP runtime";
  return [vendorLibrary(host, LIBHIP, runtime, absent, install(host, LIBHIP)), gpu(host)];
}

/** The GPUs that ROCm can compute on in a few words, or null: `AMD gfx90a`, `8 × AMD gfx942`. */
export function hipDevice(host: Host): string | null {
  const [first, ...more] = hosts.amdGpus(host);
  if (first === undefined) return null;
  return more.length === 0 ? first : `${more.length + 1} × ${first}`;
}

/** AMD GPUs on the PCI bus, with or without a driver: their addresses. */
export function amdOnPci(host: Host): string[] {
  return [...hosts.pciDevices(host, hosts.PCI_DISPLAY), ...hosts.pciDevices(host, hosts.PCI_ACCELERATOR)]
    .filter((device) => device.vendor === hosts.VENDOR_AMD)
    .map((device) => device.address);
}

function gpu(host: Host): Prerequisite {
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
