/** Nodes of the gpudirect shim in the guest, by their verbs and rings: real queue pairs between two devices. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { ADDRESS, COMPILER, PLAIN, ROOT, gpudirectSources, Workshop } from "../native/toolchain.ts";
import { runInGuest } from "./guest/job.ts";
import { rdma } from "./guest/wanted.ts";

/** The first one may have to download. */
const LIMIT = 600_000;
const LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
const SOURCES = [join(ROOT, "test/rdma/node.c"), ...gpudirectSources()];

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

/** By their names for the test: one boot runs all of them. */
const RUNS = {
  node: { flags: PLAIN, windows: true },
  node_checked: { flags: ADDRESS, windows: true },
  node_registered: { flags: PLAIN, windows: false },
} as const;

describe.skipIf(rdma.skip)(`two nodes in the guest${rdma.because}`, () => {
  let output = "";

  beforeAll(async () => {
    if (COMPILER === null) throw new Error("a C compiler is needed: apt-get install gcc libc6-dev");
    const programs: string[] = [];
    const lines: string[] = [];
    for (const [name, { flags, windows }] of Object.entries(RUNS)) {
      programs.push(await shop.link(name, SOURCES, flags));
      // What libibverbs and its providers keep until the process ends is no leak of ours.
      const words = `${LIBRARY} $GUEST_DEVICE_0 $GUEST_DEVICE_1 $GUEST_GID_INDEX ${windows ? 4 : 2}`;
      lines.push(`ASAN_OPTIONS=detect_leaks=0 ${name} ${words}; echo "${name} ended with $?"`);
    }
    const job = { name: "nodes", programs, script: lines.join("\n"), timeoutMillis: 300_000 };
    ({ output } = await runInGuest({ ...job, memoryMiB: 1_536 }));
  }, LIMIT);

  test("exchange messages of all sizes, refuse bad ones, hold up who sends too much, and end in order or not", () => {
    expect(output).toContain("node ended with 0");
  });

  test("the same under sanitizers", () => {
    expect(output).toContain("node_checked ended with 0");
  });

  test("the same where large messages are registered one by one", () => {
    expect(output).toContain("node_registered ended with 0");
  });
});
