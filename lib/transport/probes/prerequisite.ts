/** The words that all probes share: a prerequisite met or missing, and the row that they add up to. */
import { imageFault, platformLabel } from "../../ffi/index.ts";
import type { Capabilities, Prerequisite, Probe, TransportName } from "../contract.ts";
import type { Host } from "../host.ts";

export function met(name: string, seen: string): Prerequisite {
  return { name, met: true, seen, fix: "" };
}

/**
 * `seen` says what is there against what is needed. Each of `fix` becomes a line of its own: a sentence for people where it
 * ends with a full stop or a colon, and otherwise a command or setting that can be pasted as it is.
 */
export function missing(name: string, seen: string, ...fix: string[]): Prerequisite {
  return { name, met: false, seen, fix: fix.join("\n") };
}

/** A vendor's library at `path`, or null where it is not installed: then `absent` says so. One that was cut off counts as missing. */
export function vendorLibrary(
  host: Host,
  name: string,
  path: string | null,
  absent: string,
  install: readonly string[],
): Prerequisite {
  if (path === null) return missing(name, absent, ...install);
  const fault = imageFault(path, host, "mapped");
  return fault === null ? met(name, path) : missing(name, `${path} ${fault}`, "Install it anew:", ...install);
}

export function platformNeeded(host: Host, needed: string): Prerequisite {
  return missing("platform", `this is ${platformLabel(host)}, needed is ${needed}`, `Run it on ${needed}.`);
}

interface Row {
  readonly name: TransportName;
  readonly wire: string;
  readonly memory: string;
  readonly device: string | null;
  /** What the library itself has to bring. */
  readonly library: readonly Prerequisite[];
  /** What the host has to bring. */
  readonly host: readonly Prerequisite[];
  /** What it does here; needed of a transport that can be available. */
  readonly caps?: Capabilities;
}

/** The row of a transport; `caps` are told of where it is available. */
export function row({ name, wire, memory, device, library, host, caps }: Row): Probe {
  const built = library.every((prerequisite) => prerequisite.met);
  const available = built && host.every((prerequisite) => prerequisite.met);
  const prerequisites = [...library, ...host];
  return {
    name,
    built,
    available,
    wire,
    memory,
    device,
    caps: available ? (caps ?? null) : null,
    prerequisites,
  };
}
