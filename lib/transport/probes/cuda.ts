/** What every transport with NVIDIA memory asks of the host. */
import type { Prerequisite } from "../contract.ts";
import * as hosts from "../host.ts";
import type { Host } from "../host.ts";
import { install } from "./packages.ts";
import { met, missing, vendorLibrary } from "./prerequisite.ts";

export const LIBCUDA = "libcuda.so.1";

/** `libcuda.so.1` and a GPU that this process can reach. */
export function cudaPrerequisites(host: Host): Prerequisite[] {
  const driver = hosts.library(host, LIBCUDA);
  const absent = "not installed; it comes with the NVIDIA driver";
  return [vendorLibrary(host, LIBCUDA, driver, absent, install(host, LIBCUDA)), gpu(host, driver !== null)];
}

/** The GPUs that this process can reach in a few words, or null: `NVIDIA H200`, `8 × NVIDIA H200`. */
export function cudaDevice(host: Host): string | null {
  const nodes = hosts.nvidiaNodes(host);
  if (nodes.length === 0) return null;
  const model = hosts.nvidiaModels(host)[0] ?? "NVIDIA GPU";
  return nodes.length === 1 ? model : `${nodes.length} × ${model}`;
}

/** NVIDIA GPUs on the PCI bus, with or without a driver: their addresses. */
export function nvidiaOnPci(host: Host): string[] {
  return hosts
    .pciDevices(host, hosts.PCI_DISPLAY)
    .filter((device) => device.vendor === hosts.VENDOR_NVIDIA)
    .map((device) => device.address);
}

function gpu(host: Host, installed: boolean): Prerequisite {
  const name = "GPU";
  const device = cudaDevice(host);
  if (device !== null) return met(name, `${device} (${hosts.nvidiaNodes(host).join(", ")})`);

  // The order matters: each step needs the one before it.
  const loaded = hosts.nvidiaDriver(host);
  if (loaded !== null) {
    return missing(
      name,
      `the NVIDIA driver ${loaded.version} is loaded, but there is no /dev/nvidia0 here`,
      "sudo nvidia-modprobe -c 0 -u",
      "Inside a container: start it with the GPU handed in, as docker run --gpus all does.",
    );
  }
  const address = nvidiaOnPci(host)[0];
  if (address !== undefined) {
    return missing(
      name,
      `the NVIDIA GPU at ${address} has no driver loaded`,
      ...(installed ? ["sudo modprobe nvidia"] : install(host, LIBCUDA)),
    );
  }
  return missing(
    name,
    "no /dev/nvidia0, and no NVIDIA GPU on the PCI bus",
    "Needs a machine with an NVIDIA GPU, or a container that was handed one.",
  );
}
