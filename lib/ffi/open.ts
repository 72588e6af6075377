/** Opens a shim: whole, of this platform, of the right ABI and with every function, or told what to do about it. */
import { dlopen } from "bun:ffi";
import { ShimError } from "../errors/index.ts";
import { isCompiledIn } from "./image-bytes.ts";
import { imageFault } from "./image.ts";
import { platformHere, platformLabel, type Platform } from "./platform.ts";
import { locateShim } from "./shim.ts";
import { readText, statusName } from "./status.ts";
import { ABI_VERSION, SHIMS, type Calls, type ShimName, type VerbsOf } from "./symbols/index.ts";

export interface Shim<N extends ShimName = ShimName> {
  readonly name: N;
  /** The absolute path that it was loaded from. */
  readonly path: string;
  /** Its functions, by their names without the prefix. They throw nothing and check nothing. */
  readonly call: Calls<VerbsOf<N>>;
  /**
   * Returns a status of 0 or above as it is. For a negative one it throws `ShimError` with the shim's own text; `what` says what was
   * tried, in words that fit before "failed". To be called before the next call into the shim.
   */
  check(status: number, what: string): number;
}

/** What is the matter with a shim. */
export interface ShimFault {
  /** What was seen, in words that stand alone. */
  readonly seen: string;
  /** What to do about it: a sentence. */
  readonly fix: string;
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * The shim of this name, loaded. `platform` says which build to look for; what can be loaded depends on this process alone. Rejects
 * with `ShimError` where the library is nowhere, cut off, of another platform or ABI, or lacks a function; later calls look again.
 */
export async function openShim<N extends ShimName>(
  name: N,
  env: Env = process.env,
  platform: Platform = platformHere(),
): Promise<Shim<N>> {
  const found = await tryShim(name, env, platform);
  if ("shim" in found) return found.shim;
  const { seen, fix, cause } = found;
  throw new ShimError(name, null, `${name}: ${seen}. ${fix}`, { cause });
}

/** `openShim` that tells of a fault instead of rejecting. */
export async function tryShim<N extends ShimName>(
  name: N,
  env: Env = process.env,
  platform: Platform = platformHere(),
): Promise<{ readonly shim: Shim<N> } | (ShimFault & { readonly cause?: unknown })> {
  const file = await findShim(name, env, platform, platformHere());
  return "path" in file ? load(name, file.path) : file;
}

/**
 * Where the shim for `platform` lies, judged by its headers as to whether a process on `loader` could load it. Loads nothing,
 * never rejects.
 */
export async function findShim(
  name: ShimName,
  env: Env = process.env,
  platform: Platform = platformHere(),
  loader: Platform = platform,
): Promise<{ readonly path: string } | ShimFault> {
  const { path, tried } = await locateShim(name, env, platform);
  if (path === null) {
    const fix = "Run bun run build in a checkout, or let ZAP_LIB_DIR name a folder that has it.";
    return { seen: `not found as ${tried.join(" or ")}`, fix };
  }
  const fault = imageFault(path, loader);
  return fault === null ? { path } : { seen: `${path} ${fault}`, fix: replaceIt(name, loader) };
}

function replaceIt(name: ShimName, platform = platformHere()): string {
  return `Put the ${platformLabel(platform)} build of ${name} from this version of @luxfi/zap in its place.`;
}

/** By path. A library stays loaded for the life of the process: its threads may outlive any handle. */
const loaded = new Map<string, Shim>();

function load<N extends ShimName>(
  name: N,
  path: string,
): { readonly shim: Shim<N> } | (ShimFault & { readonly cause?: unknown }) {
  const known = loaded.get(path);
  if (known?.name === name) return { shim: known as unknown as Shim<N> };
  const { prefix, verbs } = SHIMS[name];
  // The version comes first: what else a library of another version exports may mean something else.
  const version = readAbi(path, `${prefix}abi`);
  if (typeof version !== "number") {
    return version.foreign
      ? { seen: `${path} is no ${name}: it lacks ${prefix}abi`, fix: replaceIt(name), cause: version.cause }
      : {
          seen: `${path} cannot be loaded: ${textOf(version.cause)}`,
          fix: loadIt(path),
          cause: version.cause,
        };
  }
  if (version !== ABI_VERSION) {
    return { seen: `${path} has ABI version ${version}, needed is ${ABI_VERSION}`, fix: replaceIt(name) };
  }
  const wanted = Object.fromEntries(Object.entries(verbs).map(([verb, type]) => [prefix + verb, type]));
  let symbols: Readonly<Record<string, unknown>>;
  try {
    symbols = dlopen(path, wanted).symbols;
  } catch (cause) {
    const lacking = Object.keys(wanted).filter((symbol) => !exports(path, symbol));
    return { seen: `${path} lacks ${lacking.join(", ") || textOf(cause)}`, fix: replaceIt(name), cause };
  }
  const call = Object.fromEntries(Object.keys(verbs).map((verb) => [verb, symbols[prefix + verb]]));
  const shim = { name, path, call: call as unknown as Calls<VerbsOf<N>>, check: checker(name, call) };
  loaded.set(path, shim as unknown as Shim);
  return { shim };
}

function readAbi(path: string, symbol: string): number | { foreign: boolean; cause: unknown } {
  let library;
  try {
    library = dlopen(path, { [symbol]: { args: [], returns: "u32" } } as const);
  } catch (cause) {
    // Bun's word for a symbol that is not there; what the loader itself says is an Error.
    return { foreign: cause instanceof TypeError, cause };
  }
  const version = library.symbols[symbol]?.() ?? 0;
  library.close();
  return version;
}

function exports(path: string, symbol: string): boolean {
  try {
    dlopen(path, { [symbol]: { args: [], returns: "i32" } } as const).close();
    return true;
  } catch {
    return false;
  }
}

function checker(name: ShimName, call: Readonly<Record<string, unknown>>): Shim["check"] {
  const error = call["error"] as Calls<VerbsOf<ShimName>>["error"];
  return (status, what) => {
    if (status >= 0) return status;
    const memory = new Uint8Array(1024);
    error(memory, memory.length);
    const told = readText(memory, 0, memory.length) || "it does not say why";
    throw new ShimError(name, statusName(status), `${name}: ${what} failed: ${told} (${statusName(status)})`);
  };
}

function loadIt(path: string): string {
  return isCompiledIn(path)
    ? "A compiled executable unpacks its libraries: let TMPDIR name a folder that is writable and not mounted noexec, or ZAP_LIB_DIR one that has them."
    : "Put a build of it that this system can load in its place.";
}

function textOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
