/**
 * The native part with DPDK in it, and pairs of software devices, for tests that send over them. It is built once for a test run; where
 * there is no zig or no libdpdk such tests are skipped, except under `CI`: there they fail.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findLibdpdk, zigOptions } from "../../scripts/libdpdk.ts";
import { findZig, HOW_TO_GET_ZIG, skipped } from "./tools.ts";

const ROOT = join(import.meta.dir, "..", "..");
const HOW_TO_GET_DPDK = "apt-get install libdpdk-dev pkg-config";

/** The folder for `ZAP_LIB_DIR`, or in words why there is none. */
const shims: { readonly folder: string } | string = once();

/** For `describe.skipIf`, and for the name of what is skipped. */
export const noDpdk: boolean = typeof shims === "string";
export const whyNoDpdk: string = typeof shims === "string" ? ` (skipped: ${shims})` : "";

// Each test file has modules of its own; the process is the same.
function once(): { readonly folder: string } | string {
  const kept = globalThis as { zapDpdk?: { readonly folder: string } | string };
  return (kept.zapDpdk ??= build());
}

/** For `ZAP_LIB_DIR`. */
export function dpdkShims(): string {
  if (typeof shims === "string") throw new Error(shims);
  return shims.folder;
}

function build(): { readonly folder: string } | string {
  if (process.platform !== "linux") return "not Linux";
  const [zig, libdpdk] = [findZig(), findLibdpdk()];
  if (zig === null) return skipped("the dpdk transport", "zig", HOW_TO_GET_ZIG);
  if (libdpdk === null) return skipped("the dpdk transport", "libdpdk", HOW_TO_GET_DPDK);
  const out = join(ROOT, "zig-out", "dpdk");
  const words = [zig, "build", ...zigOptions(libdpdk), "--prefix", out];
  const { success, stderr } = Bun.spawnSync(words, { cwd: ROOT });
  if (!success) throw new Error(`zig build with DPDK failed:\n${stderr.toString()}`);
  return { folder: join(out, "lib") };
}

export type DpdkEnv = Readonly<Record<string, string>>;

/** Two ends of one software device. The server is to be opened first. */
export class MemifPair implements Disposable {
  readonly server: DpdkEnv;
  readonly client: DpdkEnv;
  private readonly folder: string;

  constructor(more: DpdkEnv = {}) {
    const libraries = dpdkShims();
    this.folder = mkdtempSync(join(tmpdir(), "zap-memif-"));
    const end = (role: "server" | "client", number: number): DpdkEnv => ({
      ZAP_LIB_DIR: libraries,
      ZAP_DPDK_VDEV: `net_memif${number},role=${role},id=0,socket=${join(this.folder, "s")},socket-abstract=no`,
      ZAP_DPDK_ADDRESS: `10.99.0.${number + 1}/24,fd99::${number + 1}/64`,
      ZAP_DPDK_HUGEPAGES: "0",
      ...more,
    });
    this.server = end("server", 0);
    this.client = end("client", 1);
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
