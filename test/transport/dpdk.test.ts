/** The dpdk transport over real DPDK and its software devices: no network card, no hugepages, no privileges. */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { pick } from "../../lib/transport/index.ts";
import { Child } from "../support/child.ts";
import { MemifPair, noDpdk, whyNoDpdk, type DpdkEnv } from "../support/dpdk.ts";
import { noNative } from "../support/native.ts";
import { within } from "../support/wait.ts";
import type { DpdkCase } from "./dpdk.script.ts";

const LIMIT = 60_000;

interface Outcome {
  readonly outcome: unknown;
  readonly events: readonly string[];
  /** Native handles that are left. */
  readonly live: number;
}

async function run(name: DpdkCase, env: DpdkEnv = {}): Promise<Outcome> {
  using pair = new MemifPair(env);
  const ends = JSON.stringify({ server: pair.server, client: pair.client });
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "dpdk.script.ts"), name, ends], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  expect({ code: await child.exited, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout) as Outcome;
}

describe.skipIf(noDpdk)(`the dpdk transport${whyNoDpdk}`, () => {
  for (const debug of ["0", "1"]) {
    test(
      `opens, carries messages of every size, closes, and opens again, with ZAP_DEBUG=${debug}`,
      async () => {
        const { outcome, events, live } = await run("again", { ZAP_DEBUG: debug });
        const nothing = { undelivered: 0, unread: 0, buffers: 0 };
        const round = {
          driver: "net_memif",
          queues: 1,
          wrong: [],
          copied: true,
          reports: [nothing, nothing],
        };
        expect(outcome).toEqual([round, round, round]);
        expect(events.filter((event) => !/: (connected|disconnected)$/.test(event))).toEqual([]);
        expect(events).toHaveLength(12);
        expect(live).toBe(0);
      },
      LIMIT,
    );

    test(
      `sends buffers where they lie; what is kept outlives the transport, and then goes back, with ZAP_DEBUG=${debug}`,
      async () => {
        const { outcome, live } = await run("buffers", { ZAP_DEBUG: debug });
        expect(outcome).toEqual({ same: true, kept: true, buffers: [1, 2], live: [2, 0] });
        expect(live).toBe(0);
      },
      LIMIT,
    );
  }

  test(
    "holds a sender up whose receiver takes nothing, and loses none",
    async () => {
      expect((await run("pressure")).outcome).toEqual({ held: true, queued: true });
    },
    LIMIT,
  );

  test(
    "delivers what was accepted before it is closed",
    async () => {
      const nothing = { undelivered: 0, unread: 0, buffers: 0 };
      expect((await run("flush")).outcome).toEqual({ reports: [nothing, nothing], orderly: true });
    },
    LIMIT,
  );

  test(
    "leaves nothing behind where it cannot be opened, and another transport takes its place",
    async () => {
      const { outcome, live } = await run("fails");
      expect(outcome).toEqual({
        codes: [
          "ERR_ZAP_NOT_AVAILABLE",
          "ERR_ZAP_NOT_AVAILABLE",
          "ERR_ZAP_NOT_AVAILABLE",
          "ERR_ZAP_CONFIG",
          "ERR_ZAP_CONFIG",
        ],
        fallback: ["default", "ERR_ZAP_NOT_AVAILABLE"],
      });
      expect(live).toBe(0);
    },
    LIMIT,
  );

  test(
    "says why a peer was not reached",
    async () => {
      const { outcome, live } = await run("refuses");
      expect(outcome).toEqual({
        codes: [
          "ERR_ZAP_HANDSHAKE",
          "ERR_ZAP_PEER_UNREACHABLE",
          "ERR_ZAP_PEER_UNREACHABLE",
          "ERR_ZAP_ABORTED",
          "ERR_ZAP_UNKNOWN_PEER",
        ],
        turnedAway: true,
      });
      expect(live).toBe(0);
    },
    LIMIT,
  );

  for (const { count, bytes } of [
    { count: 20_000, bytes: 100 },
    { count: 40, bytes: 4_000_000 },
  ]) {
    test(
      `carries ${count} messages of ${bytes} bytes between two processes`,
      async () => {
        using pair = new MemifPair();
        const task = { transport: "dpdk", count, bytes } as const;
        const options = { nodeId: "sink", listen: ":0" };
        await using sink = await Child.start({ ...task, role: "sink", options, env: pair.server });
        const to = sink.address;
        const from = { nodeId: "source" };
        await using source = await Child.start({
          ...task,
          role: "source",
          options: from,
          to,
          env: pair.client,
        });
        const [taken, given] = await within(Promise.all([sink.done(), source.done()]), "both", LIMIT / 2);
        expect([taken.troubles, given.troubles, given.undelivered]).toEqual([[], [], 0]);
      },
      LIMIT,
    );
  }

  test(
    "has one connection where both dial at once",
    async () => {
      const { outcome, live } = await run("twins");
      expect(outcome).toEqual([0, 1, 2, 3, 4].map((round) => `b,a,a b a ${round},${round}`));
      expect(live).toBe(0);
    },
    LIMIT,
  );

  test.skipIf(noNative)(
    "lets a GPU read messages and buffers in place, as long as any of them is held",
    async () => {
      const { outcome, live } = await run("gpu");
      expect(outcome).toEqual({
        resident: true,
        where: ["cuda", "cuda"],
        verdicts: [
          [0, 0, 0],
          [0, 0],
        ],
        clean: [true],
        bases: 1,
        kinds: ["hugepages", "hugepages", "hugepages"],
      });
      expect(live).toBe(0);
    },
    LIMIT,
  );

  test.skipIf(noNative)(
    "does without a GPU that does not take the memory",
    async () => {
      const { outcome, live } = await run("noGpu");
      expect(outcome).toEqual({ resident: false, devicePtr: null, where: "cpu", clean: [true] });
      expect(live).toBe(0);
    },
    LIMIT,
  );

  test(
    "tells of a peer that was killed, and of what it did not take",
    async () => {
      const { outcome, live } = await run("loss");
      expect(outcome).toEqual({ lost: "ERR_ZAP_CONNECTION_LOST", told: true, undelivered: true, peers: [] });
      expect(live).toBe(0);
    },
    LIMIT,
  );

  test(
    "listens where a process that was killed did",
    async () => {
      const nothing = { undelivered: 0, unread: 0, buffers: 0 };
      const { outcome, live } = await run("killed");
      expect(outcome).toEqual([nothing, nothing]);
      expect(live).toBe(0);
    },
    LIMIT,
  );

  test(
    "opens again at a socket without a file, and leaves nobody listening there",
    async () => {
      const { outcome, live } = await run("abstract");
      expect({ outcome, live }).toEqual({ outcome: 0, live: 0 });
    },
    LIMIT,
  );

  test(
    "keeps nothing of those that were closed",
    async () => {
      // What the collector's eyes are still on may be one of them.
      expect((await run("forgets")).outcome).toBeLessThanOrEqual(1);
    },
    LIMIT,
  );

  test("is not opened where its settings make no sense, whatever else is", async () => {
    const error = await pick("default", { env: { ZAP_DPDK_QUEUES: "none" } }).then(
      () => null,
      (cause: unknown) => cause as { code: string },
    );
    expect(error?.code).toBe("ERR_ZAP_CONFIG");
  });
});
