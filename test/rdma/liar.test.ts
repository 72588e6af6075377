/**
 * A peer that lies, in the guest: a node of the gpudirect shim, and queue pairs straight on the verbs that do what no node does. What liar.c
 * checks behind every case is said there.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { ADDRESS, COMPILER, PLAIN, ROOT, gpudirectSources, Workshop } from "../native/toolchain.ts";
import { runInGuest } from "./guest/job.ts";
import { rdma } from "./guest/wanted.ts";

/** The first one may have to download. */
const LIMIT = 600_000;
const LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
const SOURCES = [join(ROOT, "test/rdma/liar.c"), ...gpudirectSources()];

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

describe.skipIf(rdma.skip)(`a peer that lies${rdma.because}`, () => {
  test(
    "is found out or does no harm: with memory windows, and under sanitizers with registrations",
    async () => {
      if (COMPILER === null) throw new Error("a C compiler is needed: apt-get install gcc libc6-dev");
      const programs = [
        await shop.link("liar", SOURCES, PLAIN),
        await shop.link("liar_checked", SOURCES, ADDRESS),
      ];
      const words = `${LIBRARY} $GUEST_DEVICE_0 $GUEST_DEVICE_1 $GUEST_GID_INDEX`;
      // What libibverbs and its providers keep until the process ends is no leak of ours.
      const script = `
        export ASAN_OPTIONS=detect_leaks=0
        liar ${words} 0 || exit
        echo
        liar_checked ${words} 2 slow`;
      const job = { name: "liar", programs, script, timeoutMillis: 150_000, memoryMiB: 1_536 };
      const { output } = await runInGuest(job);
      const runs = output.split("\n\n");
      expect(runs.map((run) => run.trimEnd().split("\n").at(-1))).toEqual(["liar: ok", "liar: ok"]);
      const [withWindows, registered] = runs.map((run) => run.split(/^case /m).slice(1));
      const caseOf = (all: readonly string[] | undefined, name: string): string =>
        all?.find((text) => text.startsWith(`${name}\n`)) ?? "";
      // A memory window is its queue pair's alone; a registration is good for every queue pair of the node.
      expect(caseOf(withWindows, "reads by another queue pair")).toContain("memory windows: refused");
      expect(caseOf(registered, "reads by another queue pair")).toContain("registrations: read");
      // Each was tried both ways.
      const tried = [
        "reads a byte before what is shown",
        "reads a byte behind what is shown",
        "swaps a word",
      ];
      for (const name of tried)
        for (const all of [withWindows, registered])
          expect(all?.some((text) => text.startsWith(name))).toBe(true);
      expect(caseOf(registered, "a queue pair of nobody's")).toContain("down: dead, status 12");
    },
    LIMIT,
  );
});
