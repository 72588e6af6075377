import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dir, "..", "..");

test("without the pinned zig, the build says in one sentence how to get it", () => {
  const pinned = readFileSync(join(ROOT, ".zigversion"), "utf8").trim();
  for (const [zig, seen] of [
    ["/nonexistent/zig", "ZIG: /nonexistent/zig cannot be run"],
    [process.execPath, `ZIG: ${process.execPath} cannot be run`],
  ] as const) {
    const { exitCode, stdout, stderr } = Bun.spawnSync(
      [process.execPath, join(ROOT, "scripts", "build.ts")],
      {
        env: { ...process.env, ZIG: zig },
      },
    );
    expect({ exitCode, stdout: stdout.toString() }).toEqual({ exitCode: 1, stdout: "" });
    expect(stderr.toString()).toBe(
      `build: zig ${pinned} is needed and was not found (${seen}); get it with\n` +
        `  python3 -m pip install --target .tools ziglang==${pinned}\n`,
    );
  }
});
