/** The words that all probes share: a prerequisite met or missing, and the row that they add up to. */
import { isLoadable, locateShim, platformLabel, type ShimName } from "../../ffi/index.ts";
import type { Prerequisite, Probe, TransportName } from "../contract.ts";
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

/** The part of a transport that no host can supply. */
export function dataPlane(transport: TransportName): Prerequisite {
  return missing(
    "data plane",
    `this version of the library carries no ${transport} data plane yet`,
    "Use the default transport; this row opens once a release carries it.",
  );
}

export function shim(host: Host, name: ShimName): Prerequisite {
  const { path, tried } = locateShim(name, host.env, host);
  if (path !== null && isLoadable(path, host)) return met(name, path);
  if (path !== null) {
    const fix = `Take the file away, or put the ${platformLabel(host)} build of ${name} in its place.`;
    return missing(name, `${path} is no library of this platform`, fix);
  }
  return missing(
    name,
    `not found as ${tried.join(" or ")}`,
    "This version comes without it; where you have one, let ZAP_LIB_DIR name its folder.",
  );
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
}

/** The row of a transport that this version cannot open, and so without capabilities to tell of. */
export function row({ name, wire, memory, device, library, host }: Row): Probe {
  const built = library.every((prerequisite) => prerequisite.met);
  const available = built && host.every((prerequisite) => prerequisite.met);
  return { name, built, available, wire, memory, device, caps: null, prerequisites: [...library, ...host] };
}
