/** Where our own native libraries lie. */
import { statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { platformHere, platformLabel, type Platform } from "./platform.ts";

export type ShimName =
  "libzap_uma_cuda" | "libzap_uma_metal" | "libzap_uma_hip" | "libzap_dpdk" | "libzap_gpudirect";

export interface ShimLocation {
  /** Absolute path of the library, or null where it is in none of the places. */
  readonly path: string | null;
  /** Every absolute path that was looked at, in order; the last one is `path` where there is one. */
  readonly tried: readonly string[];
}

/**
 * Looks for a shim without loading it: in the folder that `ZAP_LIB_DIR` names, then in `native/<platform>/` beside the
 * package (beside the executable, where the program was compiled into one). Paths are always absolute, because the
 * system's loader takes a bare name from the working directory too. Never throws.
 */
export function locateShim(
  name: ShimName,
  env: Readonly<Record<string, string | undefined>> = process.env,
  platform: Platform = platformHere(),
): ShimLocation {
  const file = name + suffix(platform);
  const folders = [join(packageFolder(), "native", platformLabel(platform))];
  const configured = env["ZAP_LIB_DIR"]?.trim();
  if (configured) folders.unshift(resolve(configured));

  const tried: string[] = [];
  for (const folder of folders) {
    const path = join(folder, file);
    tried.push(path);
    if (isFile(path)) return { path, tried };
  }
  return { path: null, tried };
}

function suffix({ platform }: Platform): string {
  if (platform === "darwin") return ".dylib";
  return platform === "win32" ? ".dll" : ".so";
}

function packageFolder(): string {
  // Inside a compiled executable the sources lie in a folder that no disk has.
  const compiled = import.meta.dir.startsWith("/$bunfs") || import.meta.dir.includes("~BUN");
  return compiled ? dirname(process.execPath) : resolve(import.meta.dir, "..", "..");
}

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
