/** The zig that builds the native part: in exactly one version, as its build API changes between them. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

interface Place {
  readonly name: string;
  readonly path: string | null;
}

/**
 * The path of zig in the version that `.zigversion` names: the one that `ZIG` points to, else the one on the `PATH`, else the one
 * in `.tools/`, where it is installed to if need be. Where there is none: why, and how to get it.
 */
export function zigPath(root: string): string | { readonly fault: string } {
  const pinned = pinnedVersion(root);
  const found = find(root, pinned);
  if (typeof found === "string") return found;
  const missing = {
    fault:
      `zig ${pinned} is needed and was not found (${found.seen}); get it with\n` +
      `  python3 -m pip install --target .tools ziglang==${pinned}`,
  };
  const python = Bun.which("python3");
  // Somebody who names a zig wants that one and no other.
  if (process.env["ZIG"] || python === null) return missing;
  process.stderr.write(`build: installing zig ${pinned} (the package ziglang of PyPI) into .tools/\n`);
  if (!install(python, root, pinned)) return missing;
  const installed = find(root, pinned);
  return typeof installed === "string" ? installed : missing;
}

/** The same, of what is there already; null where it is not. */
export function zigHere(root: string): string | null {
  const found = find(root, pinnedVersion(root));
  return typeof found === "string" ? found : null;
}

function pinnedVersion(root: string): string {
  return readFileSync(join(root, ".zigversion"), "utf8").trim();
}

function find(root: string, pinned: string): string | { seen: string } {
  const seen: string[] = [];
  for (const { name, path } of places(root)) {
    const version = path === null ? null : versionOf(path);
    if (path !== null && version === pinned) return path;
    if (path === null) seen.push(`${name}: none`);
    else seen.push(`${name}: ${version === null ? `${path} cannot be run` : `${path} is ${version}`}`);
  }
  return { seen: seen.join(", ") };
}

function places(root: string): Place[] {
  const given = process.env["ZIG"];
  if (given) return [{ name: "ZIG", path: Bun.which(given) ?? given }];
  const local = join(root, ".tools", "ziglang", process.platform === "win32" ? "zig.exe" : "zig");
  return [
    { name: "PATH", path: Bun.which("zig") },
    { name: ".tools", path: existsSync(local) ? local : null },
  ];
}

/** What `zig version` prints, or null where it cannot be run. */
function versionOf(path: string): string | null {
  try {
    const { success, stdout } = Bun.spawnSync([path, "version"], { stderr: "ignore" });
    return (success && stdout.toString().trim()) || null;
  } catch {
    return null;
  }
}

/** pip says itself what goes wrong. `--upgrade`: without it, it leaves another version where it is. */
function install(python: string, root: string, pinned: string): boolean {
  const words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"];
  const { success } = Bun.spawnSync([python, ...words, "--target", ".tools", `ziglang==${pinned}`], {
    cwd: root,
    env: { ...process.env, PIP_ROOT_USER_ACTION: "ignore" },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "inherit",
  });
  return success;
}
