/**
 * The DPDK part of the shims. Its bytes and its ring need no DPDK; the rest runs real DPDK over software devices, one process for each
 * environment: net_ring, net_null and net_pcap alone, net_memif between two, net_af_packet over a veth pair.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { accessSync, constants, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { zigOptions } from "../../scripts/libdpdk.ts";
import { openShim, readPrerequisites } from "../../lib/ffi/index.ts";
import { probeMemory, PROBE_ROWS } from "../../lib/transport/probes/shims.ts";
import { zigHere } from "../../scripts/zig.ts";
import { dpdkPrograms, LIBDPDK } from "./dpdk-toolchain.ts";
import { testFuzzing } from "./fuzzing.ts";
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

/** Where hugepages of 2 MiB are reserved. As root in CI that must be possible. */
const HUGEPAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const pages = (file: string) => Number(readFileSync(join(HUGEPAGES, file), "utf8"));
const reserves = () => {
  try {
    accessSync(join(HUGEPAGES, "nr_hugepages"), constants.W_OK);
    return true;
  } catch {
    return false;
  }
};
const huge = (() => {
  const isRoot = process.getuid?.() === 0;
  const missing = !LINUX
    ? "not Linux"
    : !isRoot
      ? "not root"
      : !reserves()
        ? "no 2 MiB hugepages to reserve"
        : "";
  const skip = missing !== "" && !(IN_CI && LINUX && isRoot);
  return { skip, because: skip ? ` (skipped: ${missing})` : "" };
})();

function PATH(): string {
  return `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`;
}

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

const LIMIT = 180_000;

const ENV = {
  // What DPDK itself keeps until the process ends is no leak of ours.
  ASAN_OPTIONS: "detect_leaks=0",
  UBSAN_OPTIONS: "print_stacktrace=1",
  // DPDK's libraries are not built with it.
  TSAN_OPTIONS: "ignore_noninstrumented_modules=1",
};

async function expectOk(words: readonly string[], ...names: string[]): Promise<void> {
  const { code, output } = await finish(words, { ...ENV, PATH: PATH() });
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

  test(
    "the area of messages takes and gives, and all of it comes together again, under sanitizers",
    async () => {
      const files = [join(ROOT, "test/native/dpdk_arena.c"), ...parts("common/arena", "common/fail")];
      await expectOk([await shop.link("arena", files, ADDRESS)], "arena");
    },
    LIMIT,
  );

  const mapping = (name: string) => {
    const files = [join(ROOT, "test/native/dpdk_mapping.c"), ...parts("common/mapping", "common/fail")];
    return shop.link(name, files, ADDRESS);
  };
  test(
    "the region's memory is there at once, and no child has it",
    async () => {
      await expectOk([await mapping("mapping")], "mapping");
    },
    LIMIT,
  );

  test.skipIf(huge.skip)(
    `the same of hugepages, and a text where there are too few${huge.because}`,
    async () => {
      const program = await mapping("mapping-huge");
      const change = (by: number) =>
        writeFileSync(join(HUGEPAGES, "nr_hugepages"), `${pages("nr_hugepages") + by}`);
      change(8);
      try {
        await expectOk([program, "huge", "8", `${pages("free_hugepages")}`], "mapping");
      } finally {
        change(-8);
      }
    },
    LIMIT,
  );
});

describe.skipIf(compiler.skip)(`frames as bytes${compiler.because}`, () => {
  testFuzzing({ name: "packet", sources: [join(ROOT, "shim/dpdk/packet.c")], longest: 2_048 }, () => shop);
});

describe.skipIf(dpdk.skip)(`DPDK itself${dpdk.because}`, () => {
  const NAMES = [
    ...["ports", "pcap", "memif", "veth"],
    ...["node", "node_pcap", "links", "lossy", "relay"],
  ] as const;
  const programs = new Map<(typeof NAMES)[number], string>();

  beforeAll(async () => {
    const built = await dpdkPrograms(shop, NAMES, ADDRESS);
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

  test(
    "two nodes by their verbs and rings exchange, refuse and hold up messages, and close",
    async () => {
      await expectOk([programs.get("node")!, shop.path("node.sock")], "node");
    },
    LIMIT,
  );

  test(
    "the same under the thread sanitizer",
    async () => {
      const [node] = await dpdkPrograms(shop, ["node"], THREAD, "dpdk-threads");
      await expectOk([node!, shop.path("node-threads.sock")], "node");
    },
    LIMIT,
  );

  test(
    "a node counts each frame and datagram of a capture under its own reason, and does nothing else",
    async () => {
      mkdirSync(shop.path("node-captures"));
      await expectOk([programs.get("node_pcap")!, shop.path("node-captures")], "node pcap");
    },
    LIMIT,
  );

  const linked = async (kind: string) => {
    mkdirSync(shop.path(kind));
    await expectOk([programs.get("links")!, kind, shop.path(kind)], kind);
  };
  test.each(["memif", "memif-jumbo"])("nodes talk over %s", linked, LIMIT);
  const VETH = ["af_packet", "af_packet-jumbo", "af_packet-queues", "af_xdp"];
  describe.skipIf(root.skip)(`over a veth pair${root.because}`, () => {
    test.each(VETH)("nodes talk over %s", linked, LIMIT);
  });

  test(
    "every message arrives over a link that loses, repeats, delays and damages frames",
    async () => {
      const sockets = [shop.path("left.sock"), shop.path("right.sock")];
      const relay = Bun.spawn([programs.get("relay")!, ...sockets, ..."1 20 20 50 10 100".split(" ")], {
        env: { ...process.env, ...ENV },
        ...{ stdin: "pipe", stdout: "pipe", stderr: "pipe" },
      });
      const said = relay.stdout.getReader();
      expect(new TextDecoder().decode((await said.read()).value)).toBe("ready\n");
      const { code, output } = await finish([programs.get("lossy")!, ...sockets, "96"], ENV);
      await relay.stdin.end();
      const counts = new TextDecoder().decode((await said.read()).value);
      expect([await relay.exited, await relay.stderr.text()]).toEqual([0, ""]);
      expect({ code, output }).toMatchObject({ code: 0, output: expect.stringMatching(/lossy: ok\n/) });
      // The link was as bad as it should be.
      for (const word of ["passed", "lost", "repeated", "held back", "damaged"])
        expect(counts).toMatch(new RegExp(`${word} [1-9]`));
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
