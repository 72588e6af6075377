/**
 * Which transports this host can run, found out by looking: at its files first, and where those promise something, by asking the shim.
 * No port is opened, nothing is left running or changed.
 */
import { UnknownTransportError } from "../errors/index.ts";
import { TRANSPORT_NAMES, type Probe, type TransportName } from "./contract.ts";
import { thisHost, type Host } from "./host.ts";
import { missing } from "./probes/prerequisite.ts";
import { REGISTRY, type Registry } from "./registry.ts";

/**
 * The names that this build can attempt on this operating system, best first. Whether they would succeed is for `probe` to
 * say.
 */
export function registered(platform: NodeJS.Platform = process.platform): TransportName[] {
  if (platform === "linux") return [...TRANSPORT_NAMES];
  return platform === "darwin" ? ["uma", "default"] : ["default"];
}

/**
 * What one transport is on this host. Case and surrounding blanks of the name do not matter; rejects with
 * `UnknownTransportError` where no transport has it.
 */
export async function probe(name: string): Promise<Probe> {
  return probeRow(transportName(name), thisHost());
}

/** What every transport is on this host, best first. Never rejects: a probe that fails becomes a row that says so. */
export async function probeAll(): Promise<Probe[]> {
  return probeRows(thisHost());
}

/** `probeAll` for any host and any rows. */
export async function probeRows(host: Host, rows: Registry = REGISTRY): Promise<Probe[]> {
  return Promise.all(TRANSPORT_NAMES.map((name) => probeRow(name, host, rows)));
}

/** `probe` for any host and any rows. Never rejects. */
export async function probeRow(name: TransportName, host: Host, rows: Registry = REGISTRY): Promise<Probe> {
  const { wire, memory, probe } = rows[name];
  try {
    return await probe(host);
  } catch (error) {
    const seen = `looking at this host failed: ${error instanceof Error ? error.message : String(error)}`;
    const prerequisites = [
      missing("probe", seen, "Please report this; the other transports are not affected."),
    ];
    return { name, built: false, available: false, wire, memory, device: null, caps: null, prerequisites };
  }
}

/**
 * The transport that a person means by `name`. Throws `UnknownTransportError`, which lists what there is. `source` says where
 * the name came from, `alsoKnown` what else would have done there.
 */
export function transportName(name: string, source = "", alsoKnown: readonly string[] = []): TransportName {
  const wanted = String(name).trim().toLowerCase();
  const found = TRANSPORT_NAMES.find((known) => known === wanted);
  if (found !== undefined) return found;
  // The name may come from the environment: show it, but not pages of it.
  const shown = JSON.stringify(String(name).slice(0, 60));
  const known = [...TRANSPORT_NAMES, ...alsoKnown].join(", ");
  throw new UnknownTransportError(
    `no transport is named ${shown}${source && ` (${source})`}; there are ${known}`,
  );
}
