/**
 * The DPDK part of the shims. Its bytes and its ring need no DPDK; the rest runs real DPDK over software devices, one process for each
 * environment: net_ring, net_null and net_pcap alone, net_memif between two, net_af_packet over a veth pair.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { zigOptions } from "../../scripts/libdpdk.ts";
import { openShim, readPrerequisites } from "../../lib/ffi/index.ts";
import { probeMemory, PROBE_ROWS } from "../../lib/transport/probes/shims.ts";
import { zigHere } from "../../scripts/zig.ts";
import { dpdkPrograms, LIBDPDK } from "./dpdk-toolchain.ts";
import { ADDRESS, COMPILER, IN_CI, ROOT, THREAD, Workshop, finish } from "./toolchain.ts";

const LINUX = process.platform === "linux";
/** In CI everything must run; the name of a test says why it was skipped elsewhere. */
const without = (missing: readonly (string | false)[]) => {
  const words = missing.filter((word) => word !== false);
  const skip = words.length > 0 && !(IN_CI && LINUX);
  return { skip, because: skip ? ` (skipped: ${words.join(" and ")})` : "" };
};
const compiler = without([!LINUX && "not Linux", COMPILER === null && "no C compiler here"]);
const dpdk = without([
  !LINUX && "not Linux",
  COMPILER === null && "no C compiler here",
  LIBDPDK === null && "no libdpdk here: apt-get install libdpdk-dev pkg-config",
]);
const tools = ["ip", "ethtool"].filter((name) => Bun.which(name, { PATH: PATH() }) === null);
const root = without([
  process.getuid?.() !== 0 && "not root",
  tools.length > 0 && `no ${tools.join(", ")} here`,
]);

function PATH(): string {
  return `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`;
}

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

const LIMIT = 180_000;

async function expectOk(words: readonly string[], ...names: string[]): Promise<void> {
  // What DPDK itself keeps until the process ends is no leak of ours.
  const { code, output } = await finish(words, { ASAN_OPTIONS: "detect_leaks=0", PATH: PATH() });
  expect({ code, output }).toEqual({ code: 0, output: names.map((name) => `${name}: ok\n`).join("") });
}

describe.skipIf(compiler.skip)(`of the DPDK part${compiler.because}`, () => {
  const parts = (...names: string[]) => names.map((name) => join(ROOT, "shim", `${name}.c`));

  test(
    "the parser of frames takes and drops what it should, under sanitizers",
    async () => {
      const files = parts("dpdk/packet", "dpdk/neighbours", "common/fail");
      const main = join(ROOT, "test/native/dpdk_packet.c");
      await expectOk([await shop.link("packet", [main, ...files], ADDRESS)], "packet");
    },
    LIMIT,
  );

  test(
    "the hand-off ring gives and takes back, under sanitizers",
    async () => {
      const files = [join(ROOT, "test/native/dpdk_ring.c"), ...parts("dpdk/handoff", "common/fail")];
      await expectOk([await shop.link("ring", files, ADDRESS)], "ring");
      await expectOk([await shop.link("ring-threads", files, THREAD)], "ring");
    },
    LIMIT,
  );
});

describe.skipIf(dpdk.skip)(`DPDK itself${dpdk.because}`, () => {
  const NAMES = ["ports", "pcap", "memif", "veth"] as const;
  const programs = new Map<(typeof NAMES)[number], string>();

  beforeAll(async () => {
    const built = await dpdkPrograms(shop, NAMES, ["-O1", "-fsanitize=address"]);
    NAMES.forEach((name, at) => programs.set(name, built[at]!));
  }, LIMIT);

  test(
    "starts without a trace, and its ports come and go; packets pass net_ring and net_null",
    async () => {
      await expectOk([programs.get("ports")!], "ports");
    },
    LIMIT,
  );

  test(
    "says why it did not start, and leaves the process as it was",
    async () => {
      await expectOk([programs.get("ports")!, "fails"], "failed start");
    },
    LIMIT,
  );

  test(
    "counts each frame of a capture under its own reason",
    async () => {
      mkdirSync(shop.path("captures"));
      await expectOk([programs.get("pcap")!, shop.path("captures")], "pcap");
    },
    LIMIT,
  );

  test(
    "carries every byte between two processes over net_memif",
    async () => {
      await expectOk([programs.get("memif")!, shop.path("memif.sock")], "server", "memif");
    },
    LIMIT,
  );

  test.skipIf(root.skip)(
    `talks to ordinary sockets over net_af_packet${root.because}`,
    async () => {
      await expectOk([programs.get("veth")!], "veth");
    },
    LIMIT,
  );

  const zig = zigHere(ROOT);
  test.skipIf(zig === null && !IN_CI)(
    "is what zig compiles the library against, which then says so",
    async () => {
      const prefix = shop.path("with-dpdk");
      const words = [zig!, "build", "--build-file", join(ROOT, "build.zig"), ...zigOptions(LIBDPDK!)];
      const { code, output } = await finish([...words, "--prefix", prefix]);
      expect({ code, output }).toEqual({ code: 0, output: "" });
      const shim = await openShim("libzap_dpdk", { ZAP_LIB_DIR: join(prefix, "lib") });
      const memory = probeMemory();
      const rows = readPrerequisites(memory, shim.call.probe(memory, PROBE_ROWS));
      const row = rows.find(({ name }) => name === "DPDK in libzap_dpdk");
      expect(row).toMatchObject({ met: true, fix: "" });
      expect(row!.seen).toStartWith(`built with DPDK ${LIBDPDK!.version}, runs with DPDK `);
    },
    LIMIT,
  );
});
