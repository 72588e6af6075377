/** What an operator sets for the dpdk wire: environment variables, read and checked. Nothing here looks at the host. */
import { isIP } from "node:net";
import { ConfigError } from "../../errors/index.ts";
import { DPDK_IDLE } from "../../ffi/index.ts";
import { readDecimal, readFlag, type Env } from "../../settings/index.ts";
import { ipBytes, isGroup, isMapped, isUnspecified, macBytes } from "./ip.ts";

const MIB = 1024 * 1024;
/** A device's text and a list of CPUs, as the native side has room for them. */
const DEVICE_BYTES_MAX = 511;
const LIST_BYTES_MAX = 255;

export interface OwnAddress {
  /** 16 bytes. */
  readonly ip: Uint8Array;
  readonly text: string;
  /** Bits; of an IPv4 address 0 to 32. */
  readonly prefix: number;
}

export interface Neighbour {
  readonly ip: Uint8Array;
  readonly mac: Uint8Array;
}

export interface DpdkEnvironment {
  /** `ZAP_DPDK_VDEV`: a software device with its arguments, or null. */
  readonly vdev: string | null;
  /** `ZAP_DPDK_PCI`: which network card, or null for the first that is ready. */
  readonly pci: string | null;
  /** `ZAP_DPDK_ADDRESS`: at most one of each version. */
  readonly ip4: OwnAddress | null;
  readonly ip6: OwnAddress | null;
  /** `ZAP_DPDK_GATEWAY`: 16 bytes each. */
  readonly gateway4: Uint8Array | null;
  readonly gateway6: Uint8Array | null;
  readonly neighbours: readonly Neighbour[];
  readonly queues: number;
  /** CPU lists as they are handed on; empty for anywhere. */
  readonly queueCpus: string;
  readonly cpus: string;
  readonly idle: keyof typeof DPDK_IDLE;
  /** 0 for the default. */
  readonly idleMicros: number;
  /** 0 for the device's own. */
  readonly mtu: number;
  readonly memoryMib: number;
  /** `ZAP_DPDK_SOCKET`: NUMA node plus 1; 0 for any. */
  readonly socket: number;
  readonly hugepages: boolean;
  /** 0 for the default. */
  readonly regionBytes: number;
}

/** Throws `ConfigError`, which names the variable, for a value that cannot be used. */
export function dpdkEnvironment(env: Env = process.env): DpdkEnvironment {
  const addresses = items(env, "ZAP_DPDK_ADDRESS").map(readAddress);
  const gateways = items(env, "ZAP_DPDK_GATEWAY").map((item) => ({ ip: readIp("ZAP_DPDK_GATEWAY", item) }));
  const queues = readDecimal(env, "ZAP_DPDK_QUEUES", { byDefault: 1, least: 1, most: 16 });
  return {
    vdev: readVdev(env),
    pci: readPci(env),
    ip4: onlyOne(
      "ZAP_DPDK_ADDRESS",
      "IPv4",
      addresses.filter(({ ip }) => isMapped(ip)),
    ),
    ip6: onlyOne(
      "ZAP_DPDK_ADDRESS",
      "IPv6",
      addresses.filter(({ ip }) => !isMapped(ip)),
    ),
    gateway4:
      onlyOne(
        "ZAP_DPDK_GATEWAY",
        "IPv4",
        gateways.filter(({ ip }) => isMapped(ip)),
      )?.ip ?? null,
    gateway6:
      onlyOne(
        "ZAP_DPDK_GATEWAY",
        "IPv6",
        gateways.filter(({ ip }) => !isMapped(ip)),
      )?.ip ?? null,
    neighbours: items(env, "ZAP_DPDK_NEIGHBOURS").map(readNeighbour),
    queues,
    queueCpus: readQueueCpus(env, queues),
    cpus: readCpuRanges(env),
    idle: readIdle(env),
    idleMicros: readDecimal(env, "ZAP_DPDK_IDLE_MICROS", { byDefault: 0, least: 1, most: 100_000 }),
    mtu: readDecimal(env, "ZAP_DPDK_MTU", { byDefault: 0, least: 576, most: 65_300 }),
    memoryMib: readDecimal(env, "ZAP_DPDK_MEMORY_MIB", { byDefault: 64, least: 32, most: 65_536 }),
    socket:
      text(env, "ZAP_DPDK_SOCKET") === ""
        ? 0
        : 1 + readDecimal(env, "ZAP_DPDK_SOCKET", { byDefault: 0, least: 0, most: 7 }),
    hugepages: text(env, "ZAP_DPDK_HUGEPAGES") === "" || readFlag(env, "ZAP_DPDK_HUGEPAGES"),
    regionBytes: readDecimal(env, "ZAP_DPDK_REGION_BYTES", {
      byDefault: 0,
      least: 32 * MIB,
      // One `ArrayBuffer` has less than 4 GiB.
      most: 4095 * MIB,
    }),
  };
}

function text(env: Env, name: string): string {
  return env[name]?.trim() ?? "";
}

function items(env: Env, name: string): string[] {
  const given = text(env, name);
  return given === "" ? [] : given.split(",").map((item) => item.trim());
}

function bad(name: string, given: string, needed: string): ConfigError {
  return new ConfigError(`${name} is ${JSON.stringify(given.slice(0, 60))}; it takes ${needed}`);
}

function readVdev(env: Env): string | null {
  const given = text(env, "ZAP_DPDK_VDEV");
  if (given === "") return null;
  if (Buffer.byteLength(given) > DEVICE_BYTES_MAX || /[\u0000-\u001f]/.test(given))
    throw bad("ZAP_DPDK_VDEV", given, `a software device of at most ${DEVICE_BYTES_MAX} bytes`);
  return given;
}

function readPci(env: Env): string | null {
  const given = text(env, "ZAP_DPDK_PCI").toLowerCase();
  if (given === "") return null;
  if (!/^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/.test(given))
    throw bad("ZAP_DPDK_PCI", given, "the address of a network card, such as 0000:01:00.0");
  if (text(env, "ZAP_DPDK_VDEV") !== "")
    throw new ConfigError("ZAP_DPDK_PCI and ZAP_DPDK_VDEV both name the port; it is one of them");
  return given;
}

function readIp(name: string, given: string): Uint8Array {
  const ip = ipBytes(given);
  if (ip === null || isUnspecified(ip) || isGroup(ip))
    throw bad(name, given, "IP addresses of one host each, separated by commas");
  return ip;
}

function readAddress(given: string): OwnAddress {
  const name = "ZAP_DPDK_ADDRESS";
  const [host = "", prefix, more] = given.split("/");
  const most = isIP(host) === 4 ? 32 : 128;
  const fits = prefix !== undefined && /^\d{1,3}$/.test(prefix) && Number(prefix) <= most;
  const dotted = isIP(host) === 6 && isMapped(ipBytes(host) ?? new Uint8Array(16));
  if (more !== undefined || !fits || isIP(host) === 0 || dotted)
    throw bad(name, given, "addresses with their prefix, such as 10.0.0.1/24,fd00::1/64");
  return { ip: readIp(name, host), text: host, prefix: Number(prefix) };
}

function onlyOne<T>(name: string, version: string, found: readonly T[]): T | null {
  if (found.length > 1)
    throw new ConfigError(`${name} has ${found.length} ${version} addresses; a port has one`);
  return found[0] ?? null;
}

function readNeighbour(given: string): Neighbour {
  const name = "ZAP_DPDK_NEIGHBOURS";
  const [host = "", station = "", more] = given.split("=");
  const [ip, mac] = [ipBytes(host), macBytes(station)];
  if (ip === null || mac === null || more !== undefined || isGroup(ip) || (mac[0]! & 1) !== 0)
    throw bad(name, given, "addresses with their MAC address, such as 10.0.0.2=02:00:00:00:00:02");
  return { ip, mac };
}

function readQueueCpus(env: Env, queues: number): string {
  const name = "ZAP_DPDK_CPUS";
  const given = items(env, name);
  if (given.length === 0) return "";
  const list = given.join(",");
  if (!given.every((cpu) => /^\d{1,5}$/.test(cpu)) || list.length > LIST_BYTES_MAX)
    throw bad(name, list, "CPUs, separated by commas");
  if (given.length !== queues)
    throw new ConfigError(
      `${name} names ${given.length} CPUs; ZAP_DPDK_QUEUES is ${queues}, and each has one`,
    );
  return list;
}

function readCpuRanges(env: Env): string {
  const name = "ZAP_DPDK_EAL_CPUS";
  const given = items(env, name);
  const list = given.join(",");
  if (!given.every((range) => /^\d{1,5}(-\d{1,5})?$/.test(range)) || list.length > LIST_BYTES_MAX)
    throw bad(name, list, "CPUs and ranges of them, such as 0-3,8");
  return list;
}

function readIdle(env: Env): keyof typeof DPDK_IDLE {
  const given = text(env, "ZAP_DPDK_IDLE");
  const name = given === "" ? "sleep" : given.toLowerCase();
  if (name === "spin" || name === "yield" || name === "sleep") return name;
  throw bad("ZAP_DPDK_IDLE", given, "spin, yield or sleep");
}
