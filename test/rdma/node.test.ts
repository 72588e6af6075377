/** Nodes of the gpudirect shim in the guest, by their verbs and rings: real queue pairs between two devices. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { ADDRESS, COMPILER, PLAIN, ROOT, sources, Workshop } from "../native/toolchain.ts";
import { runInGuest } from "./guest/job.ts";
import { rdma } from "./guest/wanted.ts";

/** The first one may have to download. */
const LIMIT = 600_000;
const LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
const COMMON = ["arena", "fail", "handles", "library", "mapping", "rows", "service", "thread"];
const SOURCES = [
  join(ROOT, "test/rdma/node.c"),
  ...sources("shim/gpudirect").filter((path) => !path.endsWith("/elsewhere.c")),
  ...COMMON.map((name) => join(ROOT, "shim", "common", `${name}.c`)),
];

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

describe.skipIf(rdma.skip)(`two nodes in the guest${rdma.because}`, () => {
  const run = async (name: string, flags: readonly string[], windows: boolean): Promise<string> => {
    if (COMPILER === null) throw new Error("a C compiler is needed: apt-get install gcc libc6-dev");
    const program = await shop.link(name, SOURCES, flags);
    const words = `${LIBRARY} $GUEST_DEVICE_0 $GUEST_DEVICE_1 $GUEST_GID_INDEX ${windows ? 4 : 2}`;
    // What libibverbs and its providers keep until the process ends is no leak of ours.
    const script = `ASAN_OPTIONS=detect_leaks=0 ${name} ${words}`;
    const job = { name, programs: [program], script, timeoutMillis: 150_000, memoryMiB: 1_536 };
    return (await runInGuest(job)).output;
  };

  test(
    "exchange messages of all sizes, refuse bad ones, hold up who sends too much, and end in order or not",
    async () => expect(await run("node", PLAIN, true)).toContain("node: ok"),
    LIMIT,
  );

  test(
    "the same under sanitizers",
    async () => expect(await run("node_checked", ADDRESS, true)).toContain("node: ok"),
    LIMIT,
  );

  test(
    "the same where large messages are registered one by one",
    async () => expect(await run("node_registered", PLAIN, false)).toContain("node: ok"),
    LIMIT,
  );
});
