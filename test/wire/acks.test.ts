/** What acknowledgements tell: how many messages certainly did not arrive, wherever the writing was when the connection ended. */
import { describe, expect, test } from "bun:test";
import { ackOf, helloOf, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener, type RawSocket } from "../support/raw.ts";
import { until } from "../support/wait.ts";

const KIB = 1024;
const QUICK = { limits: { sendMillis: 150, reconnectMinMillis: 10 } };

/** Sends `messageOf(bytes, n)` until some of them stay behind; returns how many were accepted. */
async function fill(node: Node, peer: string, bytes: number): Promise<number> {
  let accepted = 0;
  do {
    for (let i = 0; i < (400 * KIB) / bytes && node.transport.trySend(peer, messageOf(bytes, accepted)); i++)
      accepted++;
    // What still gathers is not behind anything.
    await Bun.sleep(1);
  } while (node.transport.stats().queuedOutBytes < 100 * KIB);
  return accepted;
}

/** Messages of which every byte is with the kernel. */
function whollyOut(node: Node, accepted: number, bytes: number): number {
  return Math.floor((accepted * (4 + bytes) - node.transport.stats().queuedOutBytes) / (4 + bytes));
}

function reported(node: Node): number {
  return node.events.reduce(
    (sum, event) =>
      sum + (event.type === "error" && "messages" in event.error ? Number(event.error.messages) : 0),
    0,
  );
}

async function untilHeard(node: Node, raw: RawSocket): Promise<void> {
  await until(() => raw.unsentBytes === 0, "the acknowledgement to be out");
  // A message behind it on the same connection: when that is there, the acknowledgement was read.
  raw.writeFrame(messageOf(20, 99));
  expect(numberOf((await node.recv()).message)).toBe(99);
}

describe("acknowledgements of messages in a block that is half written", () => {
  for (const [bytes, last] of [
    [300, "all that are out"],
    [7_000, "all that are out"],
    [1_000, "those in blocks that are out"],
    [500, "one"],
    [500, "none"],
  ] as const) {
    test(`(${last}) are taken, and leave the others to be reported (${bytes} bytes each)`, async () => {
      await using net = new Net(QUICK);
      const node = await net.node("node");
      const raw = await net.rawPeer(node, "raw", 1);
      raw.pause();
      const accepted = await fill(node, "raw", bytes);
      const out = whollyOut(node, accepted, bytes);
      const { messagesOut } = node.transport.stats();
      // Else it is not the case that this is about.
      expect(out).toBeGreaterThan(messagesOut);
      const counts = {
        none: 0,
        one: 1,
        "those in blocks that are out": messagesOut,
        "all that are out": out,
      };
      const acked = counts[last];
      for (const count of Object.values(counts)) if (count <= acked) raw.write(ackOf(count));
      await untilHeard(node, raw);
      expect(node.transport.stats().drops).toEqual({});
      raw.terminate();
      await until(() => node.transport.stats().queuedOutMessages === 0, "the rest to be given up");
      expect([reported(node), node.transport.stats().undelivered]).toEqual([
        accepted - acked,
        accepted - acked,
      ]);
    });
  }

  test("leave nothing to be reported where the next connection takes the others", async () => {
    await using net = new Net({ limits: { ...QUICK.limits, sendMillis: 4_000 } });
    using listener = new RawListener();
    const node = await net.node("node", { peers: { raw: listener.address } });
    const first = await listener.socket();
    first.write(helloOf("raw", 1));
    await node.untilPeers(1);
    await first.frame();
    first.pause();
    const accepted = await fill(node, "raw", 1_000);
    const out = whollyOut(node, accepted, 1_000);
    expect(out).toBeGreaterThan(node.transport.stats().messagesOut);
    first.write(ackOf(out));
    await untilHeard(node, first);
    first.terminate();
    const second = await listener.socket(1);
    second.write(helloOf("raw", 1));
    await second.frame();
    for (let n = out; n < accepted; n++) expect(numberOf(await second.message())).toBe(n);
    second.write(ackOf(accepted - out));
    await untilHeard(node, second);
    second.shutdown();
    await node.untilPeers(0);
    expect([reported(node), node.transport.stats()]).toMatchObject([0, { undelivered: 0, drops: {} }]);
  });

  test("are taken while a large message stands half written behind them", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw", 1);
    raw.pause();
    for (let n = 0; n < 3; n++) void node.transport.send("raw", messageOf(500, n));
    const large = node.transport.send("raw", messageOf(9 * 1024 * KIB, 3));
    large.catch(() => {});
    await until(() => node.transport.stats().messagesOut >= 3, "the small ones to be out");
    raw.write(ackOf(3));
    await untilHeard(node, raw);
    raw.terminate();
    await node.untilPeers(0);
    await until(() => node.transport.stats().queuedOutMessages === 0, "the rest to be given up");
    expect([reported(node), node.transport.stats()]).toMatchObject([0, { undelivered: 0, drops: {} }]);
  });

  test("of more than was ever queued are still dropped", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw", 1);
    raw.pause();
    const accepted = await fill(node, "raw", 1_000);
    raw.write(ackOf(accepted + 1), ackOf(2 ** 40));
    await untilHeard(node, raw);
    expect(node.transport.stats().drops).toEqual({ ack: 2 });
    raw.terminate();
    await until(() => node.transport.stats().queuedOutMessages === 0, "the rest to be given up");
    expect(reported(node)).toBe(accepted);
  });
});
