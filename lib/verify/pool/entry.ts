/**
 * Where the worker's code is. From source it lies beside this file. A bundler does not follow `new Worker(...)`: in a compiled executable or a bundle
 * the worker is there only where `worker.ts` was given as one more entry, and then under a name that depends on where the
 * entries have their common folder. Without it the calling thread does all the work.
 */
import { existsSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";

export type Entry = { readonly path: string } | { readonly missing: string };

const SOURCE = "worker.ts";
/** What the path of the built worker ends with. */
const BUILT = /(^|[\\/])verify[\\/]pool[\\/]worker\.js$/;
/** Of the package, from a folder that contains `node_modules`. */
const INSTALLED = join("node_modules", "@luxfi", "zap", "lib", "verify", "pool", "worker");
const PARENTS = 4;

const MISSING =
  "the worker's code is not in this bundle; give it to bun build as one more entry: " +
  "bun build --compile YOUR-PROGRAM.ts node_modules/@luxfi/zap/lib/verify/pool/worker.ts (docs/verify.md)";

/** The path to start workers from. `file` is that of this module as it runs. */
export function workerEntry(file: string = import.meta.path): Entry {
  const folder = dirname(file);
  if (basename(file) === "entry.ts") return { path: join(folder, SOURCE) };
  const path = isCompiled(file) ? inExecutable(file) : besideBundle(folder);
  return path === null ? { missing: MISSING } : { path };
}

function isCompiled(file: string): boolean {
  return file.startsWith("/$bunfs/") || /^[A-Z]:[\\/]~BUN[\\/]/.test(file);
}

function inExecutable(file: string): string | null {
  const root = file.startsWith("/") ? "/$bunfs/root" : file.slice(0, file.indexOf("~BUN") + 4) + "/root";
  try {
    const found = readdirSync(root, { recursive: true, encoding: "utf8" }).find((path) => BUILT.test(path));
    return found === undefined ? null : `${root}/${found}`;
  } catch {
    return null;
  }
}

function besideBundle(folder: string): string | null {
  for (let depth = 0, at = folder; depth <= PARENTS; depth++, at = dirname(at)) {
    const candidates = [
      join(at, `${INSTALLED}.js`),
      join(at, "lib", "verify", "pool", "worker.js"),
      join(at, `${INSTALLED}.ts`),
    ];
    const found = candidates.find((path) => existsSync(path));
    if (found !== undefined) return found;
  }
  return null;
}
