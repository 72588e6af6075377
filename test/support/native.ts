/**
 * The native part, for tests that need it: the shims of this machine and the doubles of vendors' libraries, built with zig once for a
 * test run. Where zig is not to be found such tests are skipped, except under `CI` or `ZAP_TEST_NATIVE=1`: there they fail.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { findZig, HOW_TO_GET_ZIG, skipped } from "./tools.ts";

const ROOT = join(import.meta.dir, "..", "..");

export interface Native {
  /** Folder of `libzap_....so`, for `ZAP_LIB_DIR`. */
  readonly shims: string;
  /** Folder of `libcuda.so.1`, `libamdhip64.so`, `libobjc.A.dylib` and `Metal`. Linux only. */
  readonly doubles: string;
  /** The zig that built them. */
  readonly zig: string;
}

/** What there is, or in words why there is nothing. */
export const native: Native | string = once();

/** For `describe.skipIf` and `test.skipIf`. */
export const noNative: boolean = typeof native === "string";

/** For tests that are skipped without it. */
export function theNative(): Native {
  if (typeof native === "string") throw new Error(native);
  return native;
}

// Each test file has modules of its own; the process is the same.
function once(): Native | string {
  const kept = globalThis as { zapNative?: Native | string };
  return (kept.zapNative ??= build());
}

function build(): Native | string {
  const zig = findZig();
  if (zig === null) return skipped("the native part", "zig", HOW_TO_GET_ZIG);
  const out = join(ROOT, "zig-out");
  const steps = process.platform === "linux" ? ["install", "doubles"] : ["install"];
  const { success, stderr } = Bun.spawnSync([zig, "build", ...steps, "--prefix", out], { cwd: ROOT });
  // A native part that does not build is no reason to skip its tests.
  if (!success) throw new Error(`zig build ${steps.join(" ")} failed:\n${stderr.toString()}`);
  const found = { shims: join(out, "lib"), doubles: join(out, "doubles"), zig };
  if (!existsSync(found.shims)) throw new Error(`zig build left nothing in ${found.shims}`);
  return found;
}
