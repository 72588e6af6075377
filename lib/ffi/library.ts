/** Whether a vendor's shared library is installed, found out without loading it. Linux only: elsewhere nothing is found. */
import { closeSync, constants, openSync, readdirSync, readFileSync, readSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { ELF_ARCHITECTURES, ELF_MAGIC } from "./elf.ts";
import { platformHere, type Platform } from "./platform.ts";

export interface LibrarySearch {
  /** The folder that stands for `/`. Default: `/`. */
  readonly root?: string;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly platform?: Platform;
}

/**
 * The absolute path of an installed library, or null. `soname` is a file name such as `libcuda.so.1`; with a `*` at its end
 * (`libamdhip64.so*`) any version will do. Looked at, in this order: the absolute folders of `LD_LIBRARY_PATH`, the
 * system's `/etc/ld.so.cache`, the folders that systems and vendors usually install to. A file counts when it is an ELF
 * of this architecture: a 32-bit namesake or the empty file that some container images carry does not. Never throws.
 */
export function locateLibrary(soname: string, search: LibrarySearch = {}): string | null {
  const { root = "/", env = process.env, platform = platformHere() } = search;
  if (platform.platform !== "linux" || soname.includes("/")) return null;

  const wanted = pattern(soname);
  const loads = (path: string) => isElf(path, ELF_ARCHITECTURES[platform.arch]?.machine);

  // An empty or relative entry means the working directory to the loader. We do not vouch for what lies there.
  const configured = (env["LD_LIBRARY_PATH"] ?? "").split(":").filter(isAbsolute);
  return (
    first(configured, root, wanted, loads) ??
    cached(root, wanted).find(loads) ??
    first(usualFolders(platform.arch), root, wanted, loads)
  );
}

interface Pattern {
  /** The file name up to the `*`, or all of it. */
  readonly stem: string;
  readonly any: boolean;
}

function pattern(soname: string): Pattern {
  return soname.endsWith("*") ? { stem: soname.slice(0, -1), any: true } : { stem: soname, any: false };
}

function matches(file: string, { stem, any }: Pattern): boolean {
  return file === stem || (any && file.startsWith(`${stem}.`));
}

function usualFolders(arch: string): string[] {
  const multiarch = ELF_ARCHITECTURES[arch]?.multiarch;
  return [
    ...(multiarch ? [`/usr/local/lib/${multiarch}`, `/lib/${multiarch}`, `/usr/lib/${multiarch}`] : []),
    ...["/usr/local/lib64", "/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib"],
    // Windows' own driver inside WSL, GPU containers, ROCm, NixOS.
    ...["/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/opt/rocm/lib", "/run/opengl-driver/lib"],
  ];
}

function first(
  folders: readonly string[],
  root: string,
  wanted: Pattern,
  loads: (path: string) => boolean,
): string | null {
  for (const folder of folders) {
    const files = wanted.any ? entries(join(root, folder)) : [wanted.stem];
    for (const file of files) {
      const path = join(root, folder, file);
      if (matches(file, wanted) && loads(path)) return path;
    }
  }
  return null;
}

/**
 * The paths in `/etc/ld.so.cache` with the wanted file name. The cache holds every path as text that ends in a zero byte
 * (ldconfig may let a file name share the tail of its path), so looking for the text is enough, whatever the version.
 */
function cached(root: string, wanted: Pattern): string[] {
  let cache: string;
  try {
    cache = readFileSync(join(root, "/etc/ld.so.cache"), "latin1");
  } catch {
    return [];
  }
  const paths: string[] = [];
  const needle = `/${wanted.stem}`;
  for (let at = cache.indexOf(needle); at !== -1; at = cache.indexOf(needle, at + 1)) {
    const start = cache.lastIndexOf("\0", at) + 1;
    const end = cache.indexOf("\0", at);
    const path = cache.slice(start, end === -1 ? undefined : end);
    if (isAbsolute(path) && matches(path.slice(path.lastIndexOf("/") + 1), wanted))
      paths.push(join(root, path));
  }
  return paths;
}

function entries(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

/** ELF header: magic at 0, class at 4 (2: 64 bits), byte order at 5 (1: little), `e_machine` as 16 bits at 18. */
function isElf(path: string, machine: number | undefined): boolean {
  const header = new Uint8Array(20);
  try {
    // Without waiting, should the name belong to a pipe.
    const file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    try {
      if (readSync(file, header, 0, header.length, 0) < header.length) return false;
    } finally {
      closeSync(file);
    }
  } catch {
    return false;
  }
  const view = new DataView(header.buffer);
  if (view.getUint32(0) !== ELF_MAGIC) return false;
  return (
    machine === undefined ||
    (view.getUint8(4) === 2 && view.getUint16(18, view.getUint8(5) === 1) === machine)
  );
}
