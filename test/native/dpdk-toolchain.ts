/** Compiles programs over the DPDK part of the shims, against this machine's libdpdk. */
import { join } from "node:path";
import { findLibdpdk } from "../../scripts/libdpdk.ts";
import { ROOT, sources, type Workshop } from "./toolchain.ts";

export const LIBDPDK = findLibdpdk();

const COMMON = ["fail", "rows", "thread", "handles", "device_thread", "arena", "mapping", "service"].map(
  (name) => join(ROOT, "shim", "common", `${name}.c`),
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

export interface DpdkBuild {
  /** Builds `test/native/dpdk_<name>.c` and returns its path. */
  program(name: string): Promise<string>;
  /** The same as a shared library. */
  library(name: string): Promise<string>;
}

/** Compiles the parts that all programs have in common. `stem` names what is built, for whoever builds more than once in a shop. */
export async function dpdkBuild(shop: Workshop, more: readonly string[], stem = "dpdk"): Promise<DpdkBuild> {
  const flags = flagsOf(more);
  const parts = [...sources("shim/dpdk"), ...sources("shim/dpdk/flow")];
  const real = parts.filter((path) => !path.endsWith("/without.c"));
  const objects = await shop.objects(stem, [...COMMON, ...real], flags);
  const link = (name: string, kind: readonly string[]): Promise<string> => {
    const main = join(ROOT, "test", "native", `dpdk_${name}.c`);
    const inputs = [main, ...objects, `-L${LIBDPDK!.libdir}`, ...LIBRARIES];
    return shop.link(`${stem}-${name}`, inputs, [...flags, ...kind]);
  };
  return { program: (name) => link(name, []), library: (name) => link(name, ["-shared"]) };
}

/** Builds these programs and returns their paths, in that order. */
export async function dpdkPrograms(
  shop: Workshop,
  names: readonly string[],
  more: readonly string[],
  stem?: string,
): Promise<string[]> {
  const build = await dpdkBuild(shop, more, stem);
  const built: string[] = [];
  for (const name of names) built.push(await build.program(name));
  return built;
}
