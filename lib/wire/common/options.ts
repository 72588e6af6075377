/** The options that mean the same on every wire, checked: whatever cannot be used is refused before anything is opened. */
import { randomUUID } from "node:crypto";
import { ConfigError } from "../../errors/index.ts";
import type { WireEvent, WireOptions } from "../contract.ts";
import { resolveLimits, type Limits } from "../settings.ts";
import { formatAddress, parseAddress } from "./address.ts";
import { checkNodeId } from "./node-id.ts";

export interface CommonOptions {
  readonly nodeId: string;
  readonly limits: Limits;
  readonly versions: readonly number[] | undefined;
  readonly onEvent: (event: WireEvent) => void;
  readonly listen: readonly string[];
  /** Node id to address. */
  readonly peers: ReadonlyMap<string, string>;
  /** Null where everybody may connect. */
  readonly allow: ReadonlySet<string> | null;
}

const KNOWN = ["nodeId", "listen", "peers", "allow", "tls", "limits", "versions", "onEvent"];

/** Throws `ConfigError` or `AddressError`, which names the option. What `tls` is to a wire, that wire says. */
export function resolveCommon(options: WireOptions): CommonOptions {
  for (const name of Object.keys(options)) {
    if (!KNOWN.includes(name))
      throw new ConfigError(`${name}: no such option; there are ${KNOWN.join(", ")}`);
  }
  const { nodeId = `zap-${randomUUID()}`, onEvent = () => {}, listen = [], versions } = options;
  checkNodeId(nodeId, "nodeId");
  checkVersions(versions);
  if (typeof onEvent !== "function") throw new ConfigError("onEvent: a function is needed");
  const places = typeof listen === "string" ? [listen] : listen;
  if (!Array.isArray(places)) throw new ConfigError("listen: an address or a list of addresses is needed");
  for (const place of places) parseAddress(place as string, true);
  const peers = resolvePeers(options.peers, nodeId);
  return {
    nodeId,
    limits: resolveLimits(options.limits),
    versions,
    onEvent,
    listen: places,
    peers,
    allow: resolveAllow(options.allow, peers),
  };
}

function resolvePeers(given: WireOptions["peers"], nodeId: string): ReadonlyMap<string, string> {
  const peers = new Map<string, string>();
  if (given !== undefined && (typeof given !== "object" || given === null)) {
    throw new ConfigError("peers: an object of node id to address is needed");
  }
  for (const [id, address] of Object.entries(given ?? {})) {
    checkNodeId(id, `peers[${JSON.stringify(id)}]`);
    if (id === nodeId) throw new ConfigError(`peers[${JSON.stringify(id)}]: this is the node's own id`);
    peers.set(id, formatAddress(parseAddress(address)));
  }
  return peers;
}

function resolveAllow(
  given: Iterable<string> | undefined,
  peers: ReadonlyMap<string, string>,
): ReadonlySet<string> | null {
  if (given === undefined) return null;
  if (typeof given !== "object" || given === null || !(Symbol.iterator in given)) {
    throw new ConfigError(`allow: a list of node ids is needed, got ${typeof given}`);
  }
  const allow = new Set(given);
  for (const id of allow) checkNodeId(id, "allow");
  for (const id of peers.keys()) allow.add(id);
  return allow;
}

function checkVersions(versions: readonly number[] | undefined): void {
  if (versions === undefined) return;
  const valid = (version: unknown): boolean =>
    Number.isInteger(version) && Number(version) > 0 && Number(version) < 65_536;
  if (!Array.isArray(versions) || versions.length === 0 || !versions.every(valid)) {
    throw new ConfigError("versions: a list of message versions is needed, each 1 to 65535");
  }
}
