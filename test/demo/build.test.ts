import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { noNative, theNative } from "../support/native.ts";

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

test("what is made for this machine alone takes no platform", () => {
  for (const step of ["doubles", "ptx", "test-native"]) {
    const command = [process.execPath, join(ROOT, "scripts", "build.ts"), step, "linux-arm64"];
    const { exitCode, stderr } = Bun.spawnSync(command);
    expect(exitCode).toBe(1);
    expect(stderr.toString()).toBe(
      `build: ${step} is made for this machine alone: name no platform with it\n`,
    );
  }
});

test.skipIf(noNative || process.platform !== "linux")(
  "a check-cuda for another platform gets a folder of its own",
  () => {
    const there = process.arch === "arm64" ? "linux-x64" : "linux-arm64";
    const target = process.arch === "arm64" ? "x86_64-linux-gnu.2.17" : "aarch64-linux-gnu.2.17";
    const out = mkdtempSync(join(tmpdir(), "zap-build-"));
    try {
      const words = ["build", "check-cuda", `-Dtarget=${target}`, "--prefix", out];
      const { exitCode, stderr } = Bun.spawnSync([theNative().zig, ...words], { cwd: ROOT });
      expect(stderr.toString()).toBe("");
      expect(exitCode).toBe(0);
      expect(readdirSync(out)).toEqual([there]);
      expect(readdirSync(join(out, there, "bin"))).toEqual(["check-cuda"]);
    } finally {
      rmSync(out, { recursive: true, force: true });
    }
  },
  120_000,
);
