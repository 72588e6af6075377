/** The options of a dpdk wire and the environment, brought to what the native node is opened with. */
import { ConfigError, NotAvailableError } from "../../errors/index.ts";
import { DPDK_EVENT_BYTES, DPDK_MESSAGES, RING_ENTRY } from "../../ffi/index.ts";
import { parseAddress, formatHostPort } from "../common/address.ts";
import { resolveCommon, type CommonOptions } from "../common/options.ts";
import type { WireOptions } from "../contract.ts";
import { DEFAULT_LIMITS, type Limits } from "../settings.ts";
import { environmentRuns } from "./environment.ts";
import { ipBytes, isUnspecified, sameIp } from "./ip.ts";
import type { DpdkEnvironment, OwnAddress } from "./settings.ts";

const MIB = 1024 * 1024;
/** Ports that no service is registered for. */
const PORTS_FIRST = 49_152;
const PORTS_LAST = 65_535;
/** What the native side takes. */
const FLOWS_MAX = 65_535;
const CANDIDATES_MAX = 1_024;
const VERSIONS_MAX = 4;
/** Of the region, beside its rings and what grows with the largest message. */
const AREAS_BYTES_MIN = 20 * MIB;
const REGION_BYTES_MAX = 1024 * MIB;
const REGION_BYTES_ORDINARY = 256 * MIB;
/** An area is a multiple of a hugepage. */
const AREA_STEP = 2 * MIB;
const KEEPALIVE_MILLIS = 1_000;

export interface Areas {
  readonly packets: number;
  readonly messages: number;
  readonly pool: number;
}

export interface DpdkOptions extends CommonOptions {
  readonly environment: DpdkEnvironment;
  /** A software device with its arguments, or the address of a network card. */
  readonly device: string;
  readonly listening: boolean;
  readonly udpPort: number;
  /** Where peers can dial in. */
  readonly addresses: readonly string[];
  readonly flows: number;
  readonly candidates: number;
  readonly keepaliveMillis: number;
  readonly areas: Areas;
}

/** What the host has, which the options do not say. */
export interface DpdkHost {
  /** The software device, or the network card that was found ready. */
  readonly device: string;
  /** Bytes of hugepages that are free now, in the size that has most of them. */
  readonly freeHugepageBytes: number;
}

/**
 * Throws `ConfigError` or `AddressError` for what can never be used, and `NotAvailableError` for what this wire does not have, so that
 * another transport may do.
 */
export function resolveDpdkOptions(
  options: WireOptions,
  environment: DpdkEnvironment,
  host: DpdkHost,
): DpdkOptions {
  const common = resolveCommon(options);
  if (options.tls !== undefined) throw new NotAvailableError("the dpdk wire has no TLS");
  const { ip4, ip6 } = environment;
  const own = [ip4, ip6].filter((each) => each !== null);
  if (own.length === 0) throw new NotAvailableError("ZAP_DPDK_ADDRESS is not set: the port has no address");
  if ((common.versions?.length ?? 0) > VERSIONS_MAX)
    throw new NotAvailableError(`versions: the dpdk wire takes at most ${VERSIONS_MAX}`);
  if (common.limits.connections > FLOWS_MAX)
    throw new NotAvailableError(`limits.connections: the dpdk wire takes at most ${FLOWS_MAX}`);
  const { listening, udpPort, addresses } = resolveListen(common.listen, own);
  const keepalive = options.limits?.keepaliveMillis;
  return {
    ...common,
    environment,
    device: host.device,
    listening,
    udpPort,
    addresses,
    flows: common.limits.connections,
    candidates: Math.min(common.limits.handshakes, CANDIDATES_MAX),
    keepaliveMillis: keepalive ?? KEEPALIVE_MILLIS,
    areas: resolveAreas(environment, host.freeHugepageBytes, common.limits),
  };
}

interface Listening {
  readonly listening: boolean;
  readonly udpPort: number;
  readonly addresses: readonly string[];
}

function resolveListen(places: readonly string[], own: readonly OwnAddress[]): Listening {
  const ports = new Set<number>();
  const hosts = new Set<OwnAddress>();
  for (const place of places) {
    const address = parseAddress(place, true);
    if (address.kind === "unix")
      throw new NotAvailableError(`listen: the dpdk wire has no unix sockets, and ${place} is one`);
    const ip = ipBytes(address.host);
    const meant = own.filter((each) => ip !== null && (isUnspecified(ip) || sameIp(each.ip, ip)));
    if (meant.length === 0)
      throw new NotAvailableError(
        `listen: ${place} is no address of the port, which has ${own.map((each) => each.text).join(" and ")} (ZAP_DPDK_ADDRESS)`,
      );
    for (const each of meant) hosts.add(each);
    ports.add(address.port);
  }
  const given = [...ports].filter((port) => port !== 0);
  if (given.length > 1)
    throw new NotAvailableError(
      `listen: the dpdk wire has one port for all addresses, and not ${given.join(" and ")}`,
    );
  const udpPort = given[0] ?? PORTS_FIRST + Math.floor(Math.random() * (PORTS_LAST - PORTS_FIRST + 1));
  return {
    listening: places.length > 0,
    udpPort,
    addresses: own.filter((each) => hosts.has(each)).map((each) => formatHostPort(each.text, udpPort)),
  };
}

/** The rings as the native side lays them out, in whole pages: room for what can happen to every flow and dial at once. */
function ringsBytes(flows: number): number {
  const events = 4 * (flows + Math.min(1_024, Math.max(64, flows))) + 64;
  const slots = 2 ** Math.max(6, Math.ceil(Math.log2(events)));
  const page = 4_096;
  const messages = 4 * (DPDK_MESSAGES * RING_ENTRY.bytes + page);
  return Math.ceil((messages + slots * DPDK_EVENT_BYTES + page) / AREA_STEP) * AREA_STEP;
}

/** The smallest region that carries messages of `frameBytes`. */
function leastRegion({ frameBytes, connections }: Pick<Limits, "frameBytes" | "connections">): number {
  return AREAS_BYTES_MIN + ringsBytes(connections) + 4 * frameBytes;
}

/** What DPDK itself still takes. */
function environmentBytes(memoryMib: number): number {
  return environmentRuns() ? 0 : memoryMib * MIB;
}

/** Bytes of hugepages that have to be free, with the default limits. */
export function hugepageBytesNeeded({ regionBytes, memoryMib }: DpdkEnvironment): number {
  return environmentBytes(memoryMib) + (regionBytes || leastRegion(DEFAULT_LIMITS));
}

/** Packets get an eighth, whole messages half, and what is to be sent the rest. Throws `ConfigError` where that is too little. */
function resolveAreas(environment: DpdkEnvironment, freeBytes: number, limits: Limits): Areas {
  const { hugepages, memoryMib, queues } = environment;
  const name = "ZAP_DPDK_REGION_BYTES";
  const least = leastRegion(limits);
  const own = environmentBytes(memoryMib);
  const room = Math.max(0, freeBytes - own);
  const byDefault = hugepages
    ? // Others may want some, too.
      Math.max(Math.min(REGION_BYTES_MAX, room / 2), Math.min(least, room))
    : REGION_BYTES_ORDINARY;
  const total = environment.regionBytes || byDefault;
  if (total < least) {
    const { frameBytes, connections } = limits;
    const needed = `with limits.frameBytes ${frameBytes} and limits.connections ${connections} dpdk needs at least ${least}`;
    if (environment.regionBytes > 0) throw new ConfigError(`${name} is ${total}; ${needed}`);
    const free = `${freeBytes} bytes of hugepages are free, of which DPDK itself takes ${own} (ZAP_DPDK_MEMORY_MIB)`;
    const lacking = hugepages ? free : `${name} is ${total} where it is not set`;
    throw new NotAvailableError(`${lacking}; ${needed}`);
  }
  const shared = total - ringsBytes(limits.connections);
  const packets = step(Math.min(Math.max(shared / 8, 4 * MIB), 64 * MIB * queues));
  const messages = step(shared / 2);
  return { packets, messages, pool: step(shared - packets - messages) };
}

function step(bytes: number): number {
  return Math.floor(bytes / AREA_STEP) * AREA_STEP;
}
