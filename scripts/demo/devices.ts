/** What the two processes get where they are to speak over DPDK and nobody has named a device: two ends of a software one. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { resolveSelection } from "../../lib/index.ts";
import type { NodeName } from "./node.ts";

export interface Devices extends Disposable {
  /** Variables for each process. */
  readonly env: Readonly<Record<NodeName, Readonly<Record<string, string>>>>;
  /** Where they listen. */
  readonly listen: string;
  /** One line for people; empty where there is nothing to say. */
  readonly line: string;
}

const REGION_BYTES = String(128 * 2 ** 20);

const NONE: Devices = {
  env: { left: {}, right: {} },
  listen: "127.0.0.1:0",
  line: "",
  [Symbol.dispose]: () => {},
};

/** Nothing but what is usual, unless `ZAP_TRANSPORT` is dpdk, no device is named, and a pair of software devices would do. */
export async function demoDevices(): Promise<Devices> {
  const { env } = process;
  const wanted = env["ZAP_TRANSPORT"]?.trim().toLowerCase() === "dpdk";
  if (!wanted || env["ZAP_DPDK_VDEV"]?.trim() || env["ZAP_DPDK_PCI"]?.trim()) return NONE;
  const folder = mkdtempSync(join(tmpdir(), "zap-demo-"));
  const end = (role: "server" | "client", number: number) => ({
    ZAP_DPDK_VDEV: `net_memif${number},role=${role},id=0,socket=${join(folder, "memif")},socket-abstract=no`,
    ZAP_DPDK_ADDRESS: `10.0.0.${number + 1}/24`,
    // Software devices need no hugepages, and the two share what memory there is.
    ZAP_DPDK_HUGEPAGES: env["ZAP_DPDK_HUGEPAGES"] ?? "0",
    ZAP_DPDK_REGION_BYTES: env["ZAP_DPDK_REGION_BYTES"] ?? REGION_BYTES,
  });
  const devices: Devices = {
    env: { left: end("server", 0), right: end("client", 1) },
    listen: ":0",
    line: "devices: net_memif0 at 10.0.0.1 and net_memif1 at 10.0.0.2, two ends of one in shared memory",
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
  if (await isUsable({ ...env, ...devices.env.left })) return devices;
  devices[Symbol.dispose]();
  return NONE;
}

async function isUsable(env: Readonly<Record<string, string | undefined>>): Promise<boolean> {
  try {
    return (await resolveSelection(undefined, { env })).name === "dpdk";
  } catch {
    // The two processes will say it better.
    return false;
  }
}
