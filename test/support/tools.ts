/** Tools that only some tests need: where they are not to be found, those tests are skipped, and a line says so. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dir, "..", "..");
const PINNED = readFileSync(join(ROOT, ".zigversion"), "utf8").trim();

export const HOW_TO_GET_ZIG = `set ZIG, or python3 -m pip install --target .tools ziglang==${PINNED}`;

/**
 * The reason to skip tests of `what` for want of `tool`. Under `CI` and `ZAP_TEST_NATIVE=1` there is none: it throws, so that they
 * fail.
 */
export function skipped(what: string, tool: string, remedy: string): string {
  const text = `tests of ${what} need ${tool}: ${remedy}`;
  const needed = ["CI", "ZAP_TEST_NATIVE"].some((name) => ["1", "true"].includes(process.env[name] ?? ""));
  if (needed) throw new Error(text);
  console.warn(`skipped: ${text}`);
  return text;
}

/** The zig of the pinned version, or null. In the places where `bun run build` looks. */
export function findZig(): string | null {
  const given = process.env["ZIG"];
  const places = given ? [given] : [Bun.which("zig"), join(ROOT, ".tools", "ziglang", "zig")];
  return places.find((path) => path !== null && versionOf(path) === PINNED) ?? null;
}

function versionOf(zig: string): string | null {
  try {
    return Bun.spawnSync([zig, "version"], { stderr: "ignore" }).stdout.toString().trim();
  } catch {
    return null;
  }
}

/** The command of a C compiler, or null: `cc` or the like, or zig. */
export function findCompiler(): readonly string[] | null {
  for (const name of ["cc", "gcc", "clang"]) {
    const path = Bun.which(name);
    if (path !== null) return [path];
  }
  const zig = findZig();
  return zig === null ? null : [zig, "cc"];
}
