/** The Ed25519 kernel of the shims, compiled by zig for this host, beside the plain call of `node:crypto`: on one core, in turns. */
import { dlopen, type FFIFunction } from "bun:ffi";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack, type Item } from "../../lib/index.ts";
import { zigPath } from "../../scripts/zig.ts";
import { CASES } from "./cases.ts";
import { plainCall } from "./plain.ts";

const ROOT = join(import.meta.dir, "..", "..");
const ITEMS = 256;

export type KernelContender = "node:crypto" | "five" | "ten";

/** Signatures per second, one figure for each round. */
export type KernelRates = Readonly<Record<KernelContender, number[]>>;

const KERNEL = { args: ["ptr", "u64", "ptr", "ptr", "u32"], returns: "void" } as const satisfies FFIFunction;

/** Builds both representations of the field, for any processor of this kind as the libraries are. Throws where there is no zig. */
function build(folder: string): string {
  const zig = zigPath(ROOT);
  if (typeof zig !== "string") throw new Error(zig.fault);
  const library = join(folder, "libed25519.so");
  const sources = ["five", "ten"].map((name) => join(ROOT, `test/native/ed25519_${name}.c`));
  const words = ["cc", "-shared", "-O2", "-mcpu=baseline", "-std=c11", ...sources, "-o", library];
  const { exitCode, stderr } = Bun.spawnSync([zig, ...words], { stdout: "ignore", stderr: "pipe" });
  if (exitCode !== 0) throw new Error(`zig cc failed: ${stderr.toString().trim().slice(-500)}`);
  return library;
}

/** `rounds` rounds in which each runs for `millis`. */
export async function measureKernel(rounds: number, millis: number): Promise<KernelRates> {
  const folder = mkdtempSync(join(tmpdir(), "zap-kernel-"));
  try {
    const { symbols, close } = dlopen(build(folder), { ed25519_five: KERNEL, ed25519_ten: KERNEL });
    const list = CASES["ed25519"]!.sign(ITEMS);
    const { bytes, table } = pack(list);
    const codes = new Uint8Array(ITEMS);
    const plain = await plainCall("ed25519");
    const runs: Readonly<Record<KernelContender, () => boolean>> = {
      "node:crypto": () => list.every((item: Item) => plain(item)),
      five: () => {
        symbols.ed25519_five(bytes, bytes.length, table, codes.fill(0), ITEMS);
        return codes.every((code) => code === 1);
      },
      ten: () => {
        symbols.ed25519_ten(bytes, bytes.length, table, codes.fill(0), ITEMS);
        return codes.every((code) => code === 1);
      },
    };
    const rates: KernelRates = { "node:crypto": [], five: [], ten: [] };
    for (let round = 0; round < rounds; round++)
      for (const name of Object.keys(runs) as KernelContender[]) rates[name].push(rateOf(runs[name], millis));
    close();
    return rates;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function rateOf(run: () => boolean, millis: number): number {
  const start = Bun.nanoseconds();
  let done = 0;
  do {
    if (!run()) throw new Error("a valid signature was refused");
    done += ITEMS;
  } while (Bun.nanoseconds() - start < millis * 1e6);
  return (done * 1e9) / (Bun.nanoseconds() - start);
}
