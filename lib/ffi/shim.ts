/** Where our own native libraries lie. */
import { statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { embeddedShim } from "./embedded.ts";
import { isCompiledIn } from "./image-bytes.ts";
import { platformHere, platformLabel, type Platform } from "./platform.ts";
import type { ShimName } from "./symbols/index.ts";

export interface ShimLocation {
  /** Absolute path of the library, or null where it is in none of the places. */
  readonly path: string | null;
  /** Every absolute path that was looked at, in order; the last one is `path` where there is one. */
  readonly tried: readonly string[];
}

/**
 * Looks for a shim without loading it: in the folder that `ZAP_LIB_DIR` names, then in what the program was bundled with (see
 * `embeddedShim`), then in `native/<platform>/` beside the package (beside the executable or the bundle, where the program is one).
 * Paths are always absolute, because the system's loader takes a bare name from the working directory too. Never rejects.
 */
export async function locateShim(
  name: ShimName,
  env: Readonly<Record<string, string | undefined>> = process.env,
  platform: Platform = platformHere(),
): Promise<ShimLocation> {
  const file = name + suffix(platform);
  const configured = env["ZAP_LIB_DIR"]?.trim();
  const places = [
    ...(configured ? [join(resolve(configured), file)] : []),
    join(packageFolder(), "native", platformLabel(platform), file),
  ];
  const embedded = await embeddedShim(name, platform);
  if (embedded !== null && !places.includes(embedded)) places.splice(-1, 0, embedded);

  const found = places.findIndex(isFile);
  if (found === -1) return { path: null, tried: places };
  return { path: places[found] ?? null, tried: places.slice(0, found + 1) };
}

/**
 * What is wrong with `ZAP_LIB_DIR`, in words that stand alone: it names no folder. Null where nothing is, or it is not set. The package's
 * own libraries are found all the same, which is why somebody has to say so.
 */
export function libDirFault(env: Readonly<Record<string, string | undefined>> = process.env): string | null {
  const configured = env["ZAP_LIB_DIR"]?.trim();
  if (!configured || isFolder(resolve(configured))) return null;
  return `ZAP_LIB_DIR names ${resolve(configured)}, which is no folder`;
}

function suffix({ platform }: Platform): string {
  if (platform === "darwin") return ".dylib";
  return platform === "win32" ? ".dll" : ".so";
}

function packageFolder(): string {
  // Inside a compiled executable the sources lie in a folder that no disk has.
  if (isCompiledIn(import.meta.dir)) return dirname(process.execPath);
  // In a bundle this is another file, and what lies two folders above it is none of ours.
  return import.meta.file === "shim.ts" ? resolve(import.meta.dir, "..", "..") : import.meta.dir;
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
