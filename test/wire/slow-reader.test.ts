/** What both processes weigh while much more than their queues hold passes to a reader that takes little. */
import { describe, expect, test } from "bun:test";
import { Child } from "../support/child.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

describe("memory", () => {
  // The queues may take 5 MiB, the receive memory 16; the rest is the engine's: code, and garbage that waits for its collector.
  const BOUND_BYTES = 96 * MIB;

  /** Sends `total` bytes from one process to another that takes `bytesPerSecond`; weighs both. */
  async function weigh(total: number, bytes: number, bytesPerSecond: number): Promise<[number, number]> {
    const count = Math.ceil(total / bytes);
    const sinkOptions = { nodeId: "sink", listen: "127.0.0.1:0" };
    await using sink = await Child.start({
      role: "sink",
      options: sinkOptions,
      count,
      bytes,
      bytesPerSecond,
    });
    const options = { nodeId: "source", limits: { closeMillis: 60_000 } };
    await using source = await Child.start({ role: "source", options, to: sink.address, count, bytes });
    const [in_, out] = await Promise.all([sink.done(), source.done()]);
    expect([in_.troubles, out.troubles, out.undelivered]).toEqual([[], [], 0]);
    return [in_.growth ?? Infinity, out.growth ?? Infinity];
  }

  for (const bytes of [2 * KIB, 64 * KIB, MIB]) {
    test(`of both processes stays bounded while 128 MiB of ${bytes / KIB} KiB messages pass to a slow reader`, async () => {
      const [sink, source] = await weigh(128 * MIB, bytes, 48 * MIB);
      expect(sink).toBeLessThan(BOUND_BYTES);
      expect(source).toBeLessThan(BOUND_BYTES);
    }, 20_000);
  }

  // Over slabs it is another run of the same: an eighth tells what lasting adds.
  const SOAK_MIB = process.env["ZAP_TEST_MEMORY"] === "slabs" ? 128 : 1_024;
  const soak = process.env["ZAP_TEST_SOAK"] === "1" ? test : test.skip;
  // It mostly waits: whoever runs this file beside the others by itself leaves it out there.
  if (process.env["ZAP_TEST_SLOW_READER"] !== "apart")
    soak(
      `of both processes stays bounded while ${SOAK_MIB} MiB pass to a reader that takes 10 MiB/s`,
      async () => {
        const [sink, source] = await weigh(SOAK_MIB * MIB, 256 * KIB, 10 * MIB);
        expect(sink).toBeLessThan(BOUND_BYTES);
        expect(source).toBeLessThan(BOUND_BYTES);
      },
      150_000,
    );
});
