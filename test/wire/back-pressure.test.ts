import { describe, expect, test } from "bun:test";
import { isMessage, messageOf, numberOf } from "../support/messages.ts";
import { Net } from "../support/nodes.ts";
import { isSettled, until, within } from "../support/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** What one read of a socket can bring beyond a limit. */
const CHUNK_BYTES = 512 * KIB;

describe("a reader that stops", () => {
  const cases: [string, number, number][] = [
    ["small messages", 300, 40_000],
    ["messages of 20 KiB", 20 * KIB, 1_000],
    ["large messages", 700 * KIB, 40],
    ["messages larger than the queues", 3 * MIB, 10],
  ];
  for (const [what, bytes, count] of cases) {
    test(`stops the sender of ${what} within the limits; then everything arrives`, async () => {
      await using net = new Net();
      const limits = { sendQueueBytes: 512 * KIB, recvQueueBytes: 512 * KIB };
      const [a, b] = await net.pair({ limits });
      let sent = 0;
      const sending = (async () => {
        for (; sent < count; sent++) await a.transport.send("b", messageOf(bytes, sent));
      })();
      let before = -1;
      while (before !== sent) {
        before = sent;
        await Bun.sleep(100);
        // A single message larger than a limit passes alone.
        const most = Math.max(512 * KIB, bytes) + CHUNK_BYTES;
        expect(a.transport.stats().queuedOutBytes).toBeLessThanOrEqual(most);
        expect(b.transport.stats().queuedInBytes).toBeLessThanOrEqual(most);
      }
      expect(sent).toBeLessThan(count);
      expect(await isSettled(sending)).toBe(false);
      expect(b.transport.stats().queuedInMessages).toBeGreaterThan(0);
      await b.takeNumbered(count);
      await within(sending, "the sender to end");
      const idle = { queuedOutBytes: 0, queuedOutMessages: 0, queuedInBytes: 0, queuedInMessages: 0 };
      expect(a.transport.stats()).toMatchObject(idle);
      expect(b.transport.stats()).toMatchObject(idle);
      expect([...a.troubles, ...b.troubles]).toEqual([]);
    }, 10_000);
  }

  test("and starts again, over and over, gets every message once", async () => {
    await using net = new Net();
    const limits = { sendQueueBytes: 64 * KIB, recvQueueBytes: 64 * KIB };
    const [a, b] = await net.pair({ limits });
    const sizes = [100, 5_000, 40_000, 200_000];
    const count = 2_000;
    const sending = (async () => {
      for (let n = 0; n < count; n++) await a.transport.send("b", messageOf(sizes[n % 4] ?? 100, n));
    })();
    for (let n = 0; n < count; n++) {
      const envelope = await within(b.transport.recv(), `message ${n}`);
      if (numberOf(envelope.message) !== n || !isMessage(envelope.message, n))
        throw new Error(`not message ${n}`);
      envelope.release();
      if (n % 250 === 0) await Bun.sleep(20);
    }
    await within(sending, "the sender to end");
  }, 10_000);

  test("holds up neither what it sends itself nor what others send it later", async () => {
    await using net = new Net();
    const limits = { sendQueueBytes: 64 * KIB, recvQueueBytes: 64 * KIB };
    const [a, b] = await net.pair({ limits });
    const sending = a.sendNumbered("b", 2_000, 10 * KIB);
    await until(() => b.transport.stats().queuedInBytes >= 64 * KIB, "the queue to be full");
    // b does not read, but it may send as it likes.
    await Promise.all([b.sendNumbered("a", 500, 5_000), a.takeNumbered(500)]);
    const c = await net.node("c");
    await c.transport.connect(b.address);
    await c.send("b", messageOf(64, 0));
    const counts = await b.takeNumbered(2_001);
    expect([...counts.entries()].sort()).toEqual([
      ["a", 2_000],
      ["c", 1],
    ]);
    await within(sending, "the sender to end");
  });

  test("on both sides, each with the other's queue full, gets going again", async () => {
    await using net = new Net();
    const limits = { sendQueueBytes: 64 * KIB, recvQueueBytes: 64 * KIB };
    const [a, b] = await net.pair({ limits });
    const sending = [a.sendNumbered("b", 1_500, 10 * KIB), b.sendNumbered("a", 1_500, 10 * KIB)];
    const full = () => [a, b].every((node) => node.transport.stats().queuedInBytes >= 64 * KIB);
    await until(full, "both queues to be full");
    await Bun.sleep(100);
    await Promise.all([a.takeNumbered(1_500), b.takeNumbered(1_500), ...sending]);
    expect([...a.troubles, ...b.troubles]).toEqual([]);
  });
});
