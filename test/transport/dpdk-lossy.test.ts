/**
 * Two processes over the dpdk transport whose link is a bad one: `dpdk_relay` between their software devices loses, repeats, delays,
 * reorders and damages frames. Whatever it does, every message arrives once, in order and intact.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { dpdkPrograms } from "../native/dpdk-toolchain.ts";
import { COMPILER, Workshop } from "../native/toolchain.ts";
import { MemifPair, noDpdk, whyNoDpdk } from "../support/dpdk.ts";
import { within } from "../support/wait.ts";
import type { LossyLine, LossyTask } from "./dpdk-lossy.script.ts";

const LIMIT = 90_000;
const skip = noDpdk || (COMPILER === null && !process.env["CI"]);
const because = whyNoDpdk || (skip ? " (skipped: no C compiler here)" : "");

let shop: Workshop;
let program: string;

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of stream) {
    const lines = (text + decoder.decode(chunk, { stream: true })).split("\n");
    text = lines.pop()!;
    yield* lines;
  }
}

/** The link. */
class Relay implements AsyncDisposable {
  readonly sockets: readonly [string, string];
  private ending = false;
  private readonly process: Bun.Subprocess<"pipe", "pipe", "pipe">;
  private readonly lines: AsyncGenerator<string>;

  private constructor(name: string, words: string) {
    this.sockets = [shop.path(`${name}-a`), shop.path(`${name}-b`)];
    this.process = Bun.spawn([program, ...this.sockets, ...words.split(" ")], {
      ...{ stdin: "pipe", stdout: "pipe", stderr: "pipe" },
    });
    this.lines = linesOf(this.process.stdout);
  }

  /** `words`: seed, how many of 1,000 frames to lose, repeat, hold back, damage; microseconds of delay. */
  static async start(name: string, words: string): Promise<Relay> {
    const relay = new Relay(name, words);
    const { value } = await within(relay.lines.next(), "the relay", 15_000);
    if (value !== "ready") throw new Error(`the relay said ${value}: ${await relay.process.stderr.text()}`);
    return relay;
  }

  /** Ends it; how many frames it lost and so on. */
  async counts(): Promise<Record<string, number>> {
    this.ending = true;
    await this.process.stdin.end();
    const { value } = await within(this.lines.next(), "the relay's last words");
    const counts: Record<string, number> = {};
    for (const word of String(value).split(", ")) {
      const space = word.lastIndexOf(" ");
      counts[word.slice(0, space)] = Number(word.slice(space + 1));
    }
    return counts;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const code = this.process.exitCode;
    this.process.kill();
    await this.process.exited;
    if (code !== null && !this.ending)
      throw new Error(`the relay ended by itself, with ${code}: ${await this.process.stderr.text()}`);
  }
}

/** A process at an end of it. */
class End implements AsyncDisposable {
  private readonly process: Bun.Subprocess<"pipe", "pipe", "inherit">;
  private readonly lines: AsyncGenerator<string>;

  constructor(relay: Relay, number: 0 | 1, task: LossyTask) {
    using pair = new MemifPair();
    const socket = relay.sockets[number];
    const env = {
      ...(number === 0 ? pair.server : pair.client),
      ZAP_DPDK_VDEV: `net_memif${number},role=client,id=0,socket=${socket},socket-abstract=no`,
      ZAP_TRANSPORT_QUIET: "1",
    };
    const script = join(import.meta.dir, "dpdk-lossy.script.ts");
    this.process = Bun.spawn([process.execPath, script, JSON.stringify(task)], {
      ...{ stdin: "pipe", stdout: "pipe", stderr: "inherit" },
      env: { ...process.env, ...env },
    });
    this.lines = linesOf(this.process.stdout);
  }

  /** The next line, which must tell of `event`. */
  async hears(event: LossyLine["event"], millis = 20_000): Promise<LossyLine> {
    const { value, done } = await within(this.lines.next(), `"${event}" of a process`, millis);
    if (done === true) throw new Error(`a process ended, and had not said "${event}"`);
    const line = JSON.parse(value) as LossyLine;
    if (line.event !== event) throw new Error(`"${event}" was expected, and it said ${value}`);
    return line;
  }

  async close(): Promise<LossyLine> {
    await this.process.stdin.end();
    return this.hears("closed");
  }

  async kill(): Promise<void> {
    this.process.kill("SIGKILL");
    await this.process.exited;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }
}

describe.skipIf(skip)(`the dpdk transport over a bad link${because}`, () => {
  beforeAll(async () => {
    shop = new Workshop();
    [program] = (await dpdkPrograms(shop, ["relay"], ["-O1"])) as [string];
  }, LIMIT);
  afterAll(() => shop?.[Symbol.dispose]());

  test.each([
    ["a bad one", "1 20 20 50 10 100", 96],
    ["a worse one", "2 80 60 150 40 300", 48],
  ])(
    "%s: every message arrives once, in order, both ways at the same time",
    async (name, words, count) => {
      await using relay = await Relay.start(name.replaceAll(" ", "-"), words);
      await using a = new End(relay, 0, { role: "exchange", count, options: { nodeId: "a", listen: ":0" } });
      const { address: to = "" } = await a.hears("open");
      await using b = new End(relay, 1, { role: "exchange", count, options: { nodeId: "b" }, to });
      await b.hears("open");
      for (const end of [a, b]) await end.hears("up");
      await Promise.all([a.hears("taken", 60_000), b.hears("taken", 60_000)]);
      const closed = await Promise.all([a.close(), b.close()]);
      for (const { drops, segmentsAgain, undelivered, report, troubles } of closed) {
        expect({ undelivered, report, troubles }).toEqual({
          undelivered: 0,
          report: { undelivered: 0, unread: 0, buffers: 0 },
          troubles: [],
        });
        expect(segmentsAgain).toBeGreaterThan(0);
        // Frames were damaged on the way, and seen to be.
        const damaged = ["frame.udp-checksum", "datagram.checksum", "frame.ip-checksum", "frame.magic"];
        expect(damaged.some((each) => (drops![each] ?? 0) > 0)).toBe(true);
      }
      for (const [what, frames] of Object.entries(await relay.counts()))
        if (what !== "overrun") expect([what, frames > 0]).toEqual([what, true]);
    },
    LIMIT,
  );

  test(
    "a process that is killed is missed, and the one that takes its place gets what comes next",
    async () => {
      await using relay = await Relay.start("killed", "3 20 20 50 10 100");
      const limits = { keepaliveMillis: 200, sendQueueBytes: 200_000 };
      const options = { nodeId: "a", listen: ":0", limits };
      await using a = new End(relay, 0, { role: "flood", options });
      const { address: to = "" } = await a.hears("open");
      const second = {
        nodeId: "b",
        listen: "10.99.0.2:7000",
        limits: { keepaliveMillis: 200, recvQueueBytes: 200_000 },
      };
      await using stuck = new End(relay, 1, { role: "stuck", options: second, to });
      await stuck.hears("open");
      for (const end of [a, stuck]) await end.hears("up");
      // Both queues are full: what is accepted now stays on this side.
      await a.hears("waits");
      await stuck.kill();
      const down = await a.hears("down");
      expect(down.troubles).toEqual([
        "ERR_ZAP_CONNECTION_LOST",
        "ERR_ZAP_UNDELIVERED",
        "disconnected: ERR_ZAP_CONNECTION_LOST",
      ]);
      expect(down.undelivered).toBeGreaterThan(0);
      expect(down.undelivered).toBeLessThanOrEqual(down.accepted!);
      await using sink = new End(relay, 1, { role: "sink", options: second, to, count: 200 });
      await sink.hears("open");
      await sink.hears("up");
      // What had not been accepted waited for it.
      expect(await sink.hears("taken")).toMatchObject({ first: down.accepted, taken: 200 });
    },
    LIMIT,
  );
});
