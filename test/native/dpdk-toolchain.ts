/** Compiles programs over the DPDK part of the shims, against this machine's libdpdk. */
import { join } from "node:path";
import { findLibdpdk } from "../../scripts/libdpdk.ts";
import { ROOT, sources, type Workshop } from "./toolchain.ts";

export const LIBDPDK = findLibdpdk();

const COMMON = ["fail", "rows", "thread", "handles", "device_thread"].map((name) =>
  join(ROOT, "shim", "common", `${name}.c`),
);
const LIBRARIES = ["ethdev", "mbuf", "mempool", "ring", "eal"].map((name) => `-lrte_${name}`);
/** Headers of DPDK's take these instructions for granted. */
const MACHINE = process.arch === "arm64" ? "-march=armv8-a+crc" : "-march=corei7";

function flagsOf(more: readonly string[]): string[] {
  if (LIBDPDK === null) throw new Error("pkg-config knows no libdpdk here");
  return [
    ...more,
    "-std=gnu11",
    MACHINE,
    "-DALLOW_EXPERIMENTAL_API",
    `-DZAP_DPDK_RELEASE="${LIBDPDK.version}"`,
    ...LIBDPDK.include.flatMap((folder) => ["-isystem", folder]),
  ];
}

/** Builds `test/native/dpdk_<name>.c` for each name and returns their paths, in that order. */
export async function dpdkPrograms(
  shop: Workshop,
  names: readonly string[],
  more: readonly string[],
): Promise<string[]> {
  const flags = flagsOf(more);
  const parts = sources("shim/dpdk").filter((path) => !path.endsWith("/without.c"));
  const objects = await shop.objects("dpdk", [...COMMON, ...parts], flags);
  const built: string[] = [];
  for (const name of names) {
    const main = join(ROOT, "test", "native", `dpdk_${name}.c`);
    built.push(
      await shop.link(`dpdk-${name}`, [main, ...objects, `-L${LIBDPDK!.libdir}`, ...LIBRARIES], flags),
    );
  }
  return built;
}
