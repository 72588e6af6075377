/** `uma`: Bun's sockets over memory that CPU and GPU share, from CUDA, HIP or Metal. */
import { shimOf, type DeviceKindName, type DeviceOptions } from "../../memory/index.ts";
import type { Capabilities, Prerequisite, Probe } from "../contract.ts";
import * as hosts from "../host.ts";
import type { Host } from "../host.ts";
import { cudaDevice, cudaPrerequisites, LIBCUDA, nvidiaOnPci } from "./cuda.ts";
import { deviceRows } from "./device.ts";
import { hipDevice, hipPrerequisites, LIBHIP, amdOnPci } from "./hip.ts";
import { metalDevice, metalPrerequisites } from "./metal.ts";
import { missing, platformNeeded, row } from "./prerequisite.ts";
import { shimFile, shimLoaded } from "./shims.ts";
import { runtimeOf } from "./uma-runtime.ts";

/**
 * What sockets over shared memory do on a plaintext connection; the transport lowers `zeroCopy` where TLS decrypts by copying. A
 * thread has to wake the event loop first, hence the 5 us more than `default` takes.
 */
export const UMA_CAPS: Capabilities = { gpuResident: true, zeroCopy: true, minLatencyMicros: 20 };

const common = { name: "uma", wire: "sockets", caps: UMA_CAPS } as const;

export async function probeUma(host: Host): Promise<Probe> {
  const kind = umaKind(host);
  switch (kind) {
    case "cuda":
      return probeKind(host, kind, cudaDevice(host), cudaPrerequisites(host));
    case "hip":
      return probeKind(host, kind, hipDevice(host), hipPrerequisites(host));
    case "metal":
      return probeKind(host, kind, metalDevice(host), metalPrerequisites(host));
    case null:
      return probeNone(host);
  }
}

/**
 * The vendor whose memory this host comes closest to: one that is complete, else the first of which there is any sign; null for
 * none. Looks at files only.
 */
export function umaKind(host: Host): DeviceKindName | null {
  if (host.platform === "darwin") return "metal";
  if (host.platform !== "linux") return null;
  if (complete(cudaPrerequisites(host))) return "cuda";
  if (complete(hipPrerequisites(host))) return "hip";
  if (hosts.nvidiaDriver(host) || cudaDevice(host) || nvidiaOnPci(host).length > 0) return "cuda";
  if (hipDevice(host) || amdOnPci(host).length > 0) return "hip";
  if (hosts.library(host, LIBCUDA)) return "cuda";
  return hosts.library(host, `${LIBHIP}*`) ? "hip" : null;
}

/** How to open this host's unified memory, or null where it has none. The probe says whether that can succeed. */
export function umaRuntime(host: Host): DeviceOptions | null {
  const kind = umaKind(host);
  return kind === null ? null : runtimeOf(host, kind);
}

/** The files first; the shim is loaded, and with it the vendor's library, only where nothing is missing among them. */
async function probeKind(
  host: Host,
  kind: DeviceKindName,
  device: string | null,
  files: readonly Prerequisite[],
): Promise<Probe> {
  const name = shimOf(kind);
  const of = { ...common, memory: kind, device };
  if (!complete(files)) return row({ ...of, library: [await shimFile(host, name)], host: files });
  const { shim, row: library } = await shimLoaded(host, name);
  const runtime = runtimeOf(host, kind);
  const asked = shim === null || runtime === null ? [] : deviceRows(host, runtime, shim);
  return row({ ...of, library: [library], host: merge(files, asked) });
}

async function probeNone(host: Host): Promise<Probe> {
  const of = { ...common, memory: "none", device: null };
  if (host.platform !== "linux") {
    return row({ ...of, library: [platformNeeded(host, "Linux or macOS")], host: [] });
  }
  const gpu = missing(
    "GPU",
    `neither /dev/nvidia0 nor /dev/kfd, no NVIDIA or AMD GPU on the PCI bus, and neither ${LIBCUDA} nor ${LIBHIP} installed`,
    "Needs a machine with an NVIDIA or AMD GPU, or a container that was handed one.",
  );
  return row({ ...of, library: [await shimFile(host, "libzap_uma_cuda")], host: [gpu] });
}

function complete(prerequisites: readonly Prerequisite[]): boolean {
  return prerequisites.every((prerequisite) => prerequisite.met);
}

/** Where the device itself was asked about the same thing, its answer counts. */
function merge(files: readonly Prerequisite[], asked: readonly Prerequisite[]): Prerequisite[] {
  const answers = new Map(asked.map((row) => [row.name, row]));
  const known = files.map((row) => answers.get(row.name) ?? row);
  return [...known, ...asked.filter((row) => !known.includes(row))];
}
