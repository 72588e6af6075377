/**
 * What the two processes get where nobody has named a device: to speak over DPDK two ends of a software one, and to speak by RDMA two
 * devices where there are two.
 */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
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

/** Nothing but what is usual, unless `ZAP_TRANSPORT` is dpdk or gpudirect, no device is named, and there is a pair that would do. */
export async function demoDevices(): Promise<Devices> {
  const wanted = process.env["ZAP_TRANSPORT"]?.trim().toLowerCase();
  if (wanted === "gpudirect") return rdmaDevices();
  return wanted === "dpdk" ? softwareDevices() : NONE;
}

async function rdmaDevices(): Promise<Devices> {
  const { env } = process;
  if (env["ZAP_GPUDIRECT_DEVICE"]?.trim()) return NONE;
  const [left, right] = rdmaNames();
  if (left === undefined || right === undefined) return NONE;
  const device = (name: string) => ({
    ZAP_GPUDIRECT_DEVICE: name,
    ZAP_GPUDIRECT_REGION_BYTES: env["ZAP_GPUDIRECT_REGION_BYTES"] ?? REGION_BYTES,
  });
  if (!(await isUsable({ ...env, ...device(left) }, "gpudirect"))) return NONE;
  return {
    ...NONE,
    env: { left: device(left), right: device(right) },
    line: `devices: ${left} and ${right}`,
  };
}

function rdmaNames(): string[] {
  try {
    return readdirSync("/sys/class/infiniband").sort();
  } catch {
    return [];
  }
}

async function softwareDevices(): Promise<Devices> {
  const { env } = process;
  if (env["ZAP_DPDK_VDEV"]?.trim() || env["ZAP_DPDK_PCI"]?.trim()) return NONE;
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
  if (await isUsable({ ...env, ...devices.env.left }, "dpdk")) return devices;
  devices[Symbol.dispose]();
  return NONE;
}

async function isUsable(
  env: Readonly<Record<string, string | undefined>>,
  name: "dpdk" | "gpudirect",
): Promise<boolean> {
  try {
    return (await resolveSelection(undefined, { env })).name === name;
  } catch {
    // The two processes will say it better.
    return false;
  }
}
