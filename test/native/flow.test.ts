/** The datagram protocol of shim/dpdk/flow (docs/wire-dpdk.md): its parts, simulated worlds by seed, and fuzzing, under sanitizers. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { SOAK, testFuzzing } from "./fuzzing.ts";
import { ADDRESS, COMPILER, finish, IN_CI, ROOT, sources, Workshop } from "./toolchain.ts";

/** Worlds with sanitizers, and worlds without. A world is 2 to 600 s of virtual time, and some 3 ms of ours. */
const WORLDS = SOAK ? 1_200 : 600;
const FAST_WORLDS = SOAK ? 6_000 : 3_000;

const FAST = ["-O2"];
const NATIVE = join(ROOT, "test/native");
const WORLD = ["flow_sim_net.c", "flow_sim_app.c", "flow_sim_run.c", "flow_sim_test.c"].map((file) =>
  join(NATIVE, file),
);
const shop = new Workshop();
afterAll(() => shop[Symbol.dispose]());

async function expectOk(words: readonly string[], last: RegExp) {
  const { code, output } = await finish(words);
  expect(output.trim().split("\n").at(-1)).toMatch(last);
  expect(code).toBe(0);
}

const missing = COMPILER === null && !IN_CI;

describe.skipIf(missing)(
  `messages over datagrams${missing ? " (skipped: no gcc or clang here)" : ""}`,
  () => {
    let safe: string[] = [];
    let fast: string[] = [];

    beforeAll(async () => {
      expect(COMPILER).not.toBeNull();
      safe = await shop.objects("flow-safe", sources("shim/dpdk/flow"), ADDRESS);
      fast = await shop.objects("flow-fast", sources("shim/dpdk/flow"), FAST);
    }, 120_000);

    test("hold part by part", async () => {
      const program = await shop.link("unit", [join(NATIVE, "flow_unit_test.c"), ...safe], ADDRESS);
      await expectOk([program], /^flow: ok$/);
      if (process.arch !== "x64") return;
      // The checksum by the processor's instruction, as builds for newer processors have it.
      const crc = await shop.objects(
        "flow-crc",
        [join(ROOT, "shim/dpdk/flow/crc32c.c")],
        [...ADDRESS, "-msse4.2"],
      );
      const parts = [...safe.filter((object) => !object.endsWith("/crc32c.c.o")), ...crc];
      await expectOk(
        [await shop.link("unit-crc", [join(NATIVE, "flow_unit_test.c"), ...parts], ADDRESS)],
        /^flow: ok$/,
      );
    }, 60_000);

    test.each([
      ["with sanitizers", 1, WORLDS],
      ["without", 1_000_000, FAST_WORLDS],
    ])(
      "arrive once, in order and whole, or are known to be lost: worlds %s",
      async (name, first, count) => {
        const [flags, objects] = name === "without" ? [FAST, fast] : [ADDRESS, safe];
        const program = await shop.link(`worlds-${first}`, [...WORLD, ...objects], flags);
        await expectOk([program, `${first}`, `${count}`], /^\d+ seeds, .*: ok$/);
      },
      SOAK ? 1_800_000 : 120_000,
    );

    testFuzzing({ name: "flow", sources: sources("shim/dpdk/flow"), longest: 8_192 }, () => shop);
  },
);
