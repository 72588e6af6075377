import { afterAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { ABI_VERSION, platformHere, type ShimName } from "../../lib/ffi/index.ts";
import { probeRows } from "../../lib/transport/probe.ts";
import { probeDpdk, probeGpudirect, probeUma } from "../../lib/transport/probes/index.ts";
import { resolveSelection } from "../../lib/transport/resolve.ts";
import { fileIn, forgetStandIns, standIn, standInBytes, temporary } from "../ffi/stand-in.ts";
import { noCompiler } from "../support/compiler.ts";
import { elf, forgetHosts, madeUpHost, nvidia } from "./made-up-host.ts";

afterAll(forgetHosts);
afterAll(forgetStandIns);

const NAMES = { uma: "libzap_uma_cuda", dpdk: "libzap_dpdk", gpudirect: "libzap_gpudirect" } as const;
const PROBES = { uma: probeUma, dpdk: probeDpdk, gpudirect: probeGpudirect };
const OTHER = process.arch === "x64" ? 183 : 62;

function folderWith(name: ShimName, contents: string | Uint8Array): string {
  const folder = temporary();
  writeFileSync(fileIn(folder, name), contents);
  return folder;
}

/** What may lie where a shim should, and what is said of it. */
const SPOILT: Readonly<Record<string, { folder: (name: ShimName) => string; seen: RegExp }>> = {
  "a text": { folder: (name) => folderWith(name, "not a library\n"), seen: /is no ELF library$/ },
  "an empty file": { folder: (name) => folderWith(name, ""), seen: /is empty$/ },
  "a library of another architecture": {
    folder: (name) => folderWith(name, elf(OTHER)),
    seen: /is built for /,
  },
  "half a library": {
    folder: (name) => folderWith(name, standInBytes(name).subarray(0, 9_000)),
    seen: /is cut off: 9000 bytes of at least /,
  },
  "headers with nothing behind": {
    folder: (name) => folderWith(name, elf(OTHER === 183 ? 62 : 183)),
    seen: /cannot be loaded: /,
  },
  "another ABI": {
    folder: (name) => standIn(name, { abi: ABI_VERSION + 1 }),
    seen: /has ABI version \d+, needed is \d+$/,
  },
  "a library that lacks a function": {
    folder: (name) => standIn(name, { without: ["probe"] }),
    seen: /lacks zap_[a-z_]+_probe$/,
  },
  "another shim under this name": {
    folder: (name) => folderWith(name, standInBytes("libzap_uma_hip")),
    seen: /it lacks zap_[a-z_]+_abi$/,
  },
};

describe.skipIf(noCompiler || process.platform !== "linux")("in place of a shim,", () => {
  for (const [what, { folder, seen }] of Object.entries(SPOILT)) {
    test(`${what} is a missing prerequisite`, async () => {
      for (const transport of ["uma", "dpdk", "gpudirect"] as const) {
        const name = NAMES[transport];
        const files = Object.fromEntries(
          Object.entries(nvidia).map(([path, contents]) => [
            path.replace(/^.*\/libcuda/, "/usr/lib/libcuda"),
            contents,
          ]),
        );
        const driver = { "/usr/lib/libcuda.so.1": elf(process.arch === "x64" ? 62 : 183) };
        const host = madeUpHost(
          { ...files, ...driver },
          { ...platformHere(), env: { ZAP_LIB_DIR: folder(name) } },
        );
        const row = await PROBES[transport](host);
        expect(row).toMatchObject({ built: false, available: false, caps: null });
        const shim = row.prerequisites.find((each) => each.name === name);
        expect(shim).toMatchObject({ met: false, seen: expect.stringMatching(seen) });
        expect(shim?.fix).toMatch(/^Put .*\.$/);
      }
    });
  }

  test("whatever it is, default stays", async () => {
    const env = { ZAP_LIB_DIR: folderWith("libzap_uma_cuda", "not a library\n") };
    const probes = await probeRows(madeUpHost(nvidia, { env }));
    expect((await resolveSelection(undefined, { env: {}, probes })).name).toBe("default");
  });
});
