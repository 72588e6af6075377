#!/usr/bin/env bun
/** `bun run build`: builds the native part with zig, the one toolchain that it needs. Arguments go to `zig build`. */
import { existsSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dir, "..");
/** What `pip install --target .tools ziglang` makes. */
const LOCAL_ZIG = join(ROOT, ".tools", "ziglang", process.platform === "win32" ? "zig.exe" : "zig");

/** The build API of zig changes between versions, so exactly one will do. */
const pinned = (await Bun.file(join(ROOT, ".zigversion")).text()).trim();

interface Place {
  readonly name: string;
  readonly path: string | null;
}

function places(): Place[] {
  const given = process.env["ZIG"];
  // Somebody who names a zig wants that one and no other.
  if (given) return [{ name: "ZIG", path: Bun.which(given) ?? given }];
  return [
    { name: "PATH", path: Bun.which("zig") },
    { name: ".tools", path: existsSync(LOCAL_ZIG) ? LOCAL_ZIG : null },
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

/** The path of the pinned zig, or what was found instead, in words. */
function findZig(): { path: string } | { seen: string } {
  const seen: string[] = [];
  for (const { name, path } of places()) {
    const version = path === null ? null : versionOf(path);
    if (path !== null && version === pinned) return { path };
    if (path === null) seen.push(`${name}: none`);
    else seen.push(`${name}: ${version === null ? `${path} cannot be run` : `${path} is ${version}`}`);
  }
  return { seen: seen.join(", ") };
}

const zig = findZig();
if ("seen" in zig) {
  process.stderr.write(
    `build: zig ${pinned} is needed and was not found (${zig.seen}); get it with\n` +
      `  python3 -m pip install --target .tools ziglang==${pinned}\n`,
  );
  process.exit(1);
}
const { exitCode } = Bun.spawnSync([zig.path, "build", ...process.argv.slice(2)], {
  cwd: ROOT,
  stdin: "inherit",
  stdout: "inherit",
  stderr: "inherit",
});
if (exitCode === 0) console.log(`build: done with zig ${pinned}; the native part has nothing to build yet`);
process.exit(exitCode);
