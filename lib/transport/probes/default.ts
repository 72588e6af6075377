/** `default`: Bun's sockets and the heap. Runs wherever Bun does. */
import type { Capabilities, Probe } from "../contract.ts";
import type { Host } from "../host.ts";
import { met } from "./prerequisite.ts";

/**
 * What sockets over the heap do. The message is a view of what Bun read, but Bun has copied it out of the kernel; 15 us is
 * half of what a bare round trip of 64 bytes takes over loopback.
 */
export const DEFAULT_CAPS: Capabilities = { gpuResident: false, zeroCopy: false, minLatencyMicros: 15 };

export async function probeDefault(_host: Host): Promise<Probe> {
  return {
    name: "default",
    built: true,
    available: true,
    wire: "sockets",
    memory: "heap",
    device: null,
    caps: DEFAULT_CAPS,
    prerequisites: [met("Bun sockets", `Bun ${Bun.version}`)],
  };
}
