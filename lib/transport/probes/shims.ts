/** The rows of our own native libraries: as their files look, or loaded and asked. */
import {
  findShim,
  libDirFault,
  PREREQUISITE,
  readPrerequisites,
  tryShim,
  type Shim,
  type ShimName,
} from "../../ffi/index.ts";
import type { Prerequisite } from "../contract.ts";
import type { Host } from "../host.ts";
import { met, missing } from "./prerequisite.ts";

/** The library of ours that a transport needs, as its file looks. Loads nothing. */
export async function shimFile(host: Host, name: ShimName): Promise<Prerequisite> {
  const file = await findShim(name, host.env, host);
  return "path" in file
    ? met(name, seenHere(host, file.path))
    : missing(name, seenHere(host, file.seen), file.fix);
}

/** A `ZAP_LIB_DIR` that names no folder would else be passed over without a word. */
function seenHere(host: Host, seen: string): string {
  const fault = libDirFault(host.env);
  return fault === null ? seen : `${seen}; ${fault}`;
}

/** The same library, loaded and checked; null where it cannot be. */
export async function shimLoaded<N extends ShimName>(
  host: Host,
  name: N,
): Promise<{ readonly shim: Shim<N> | null; readonly row: Prerequisite }> {
  const found = await tryShim(name, host.env, host);
  if ("shim" in found) return { shim: found.shim, row: met(name, seenHere(host, found.shim.path)) };
  return { shim: null, row: missing(name, seenHere(host, found.seen), found.fix) };
}

/** The row of a shim that depends on no vendor's library, and what it says of itself. */
export async function ownRows(host: Host, name: "libzap_dpdk"): Promise<Prerequisite[]> {
  const { shim, row } = await shimLoaded(host, name);
  if (shim === null) return [row];
  const memory = probeMemory();
  const count = shim.check(shim.call.probe(memory, PROBE_ROWS), "probing");
  return [row, ...readPrerequisites(memory, count)];
}

/** More rows than any shim fills. */
export const PROBE_ROWS = 32;

export function probeMemory(): Uint8Array {
  return new Uint8Array(PROBE_ROWS * PREREQUISITE.bytes);
}
