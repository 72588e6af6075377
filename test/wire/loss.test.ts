import { describe, expect, test } from "bun:test";
import { Child } from "../support/child.ts";
import { frameOf, joined, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { failureOf, until, untilStable, within } from "../support/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const QUICK = { limits: { reconnectMinMillis: 20, reconnectMaxMillis: 100, sendMillis: 400 } };

async function expectStillUsable(net: Net, node: Node): Promise<void> {
  const other = await net.node("somebody-else");
  await other.transport.connect(node.address);
  const [, got] = await Promise.all([node.send("somebody-else", messageOf(64, 8)), other.recv()]);
  expect(numberOf(got.message)).toBe(8);
}

/** Undelivered messages, as told by error events. */
function undeliveredOf(node: Node): number {
  return node.events.reduce((sum, event) => {
    const lost = event.type === "error" && "messages" in event.error ? Number(event.error.messages) : 0;
    return sum + lost;
  }, 0);
}

describe("a peer process that is killed", () => {
  test("in the middle of a frame it sends is an error that names it", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node");
    const options = { nodeId: "victim" };
    await using child = await Child.start({
      role: "source",
      options,
      to: node.address,
      count: 1e6,
      bytes: 3 * MIB,
    });
    for (let n = 0; n < 3; n++) expect(numberOf((await node.recv()).message)).toBe(n);
    await child.kill();
    await until(() => node.transport.peers().length === 0, "the loss to be noticed");
    expect(await node.untilError("ERR_ZAP_CONNECTION_LOST", "victim")).toContain("victim");
    const gone = node.events.findLast((event) => event.type === "disconnected");
    expect(gone).toMatchObject({ peer: "victim", error: { code: "ERR_ZAP_CONNECTION_LOST" } });
    // What had come whole is still there to be taken, in order; nothing else is.
    const left = node.transport.stats().queuedInMessages;
    for (let n = 3; n < 3 + left; n++) expect(numberOf((await node.recv()).message)).toBe(n);
    expect(node.transport.tryRecv()).toBeNull();
    await expectStillUsable(net, node);
  });

  test("in the middle of a frame sent to it rejects that send, and reports what had been handed over", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node");
    const options = { nodeId: "victim", listen: "127.0.0.1:0", limits: { recvQueueBytes: 64 * KIB } };
    await using child = await Child.start({ role: "idle", options });
    expect(await node.transport.connect(child.address)).toBe("victim");
    // It takes nothing: small messages fill the pipes, and a large one stops in the middle.
    const sends: { settled: boolean; promise: Promise<void> }[] = [];
    for (let n = 0; n < 40; n++) {
      const promise = node.transport.send("victim", messageOf(1 * MIB, n));
      const one = { settled: false, promise };
      promise.then(
        () => (one.settled = true),
        () => {},
      );
      sends.push(one);
    }
    await until(() => sends.some((one) => one.settled), "some to be handed over");
    await untilStable(() => sends.filter((one) => one.settled).length, "the pipes to be full");
    await child.kill();
    // By the outcome: what was handed over stands in front, and every other is rejected.
    const outcomes = await within(Promise.allSettled(sends.map((one) => one.promise)), "every send to end");
    const handedOver = outcomes.findIndex((outcome) => outcome.status === "rejected");
    expect(handedOver).toBeGreaterThan(0);
    for (const one of sends.slice(handedOver)) {
      const error = await failureOf(one.promise, 2_000);
      expect(error.code).toBe("ERR_ZAP_PEER_UNREACHABLE");
      expect(error.message).toContain("victim");
    }
    await node.untilError("ERR_ZAP_UNDELIVERED", "victim");
    // None of those that were handed over reached anybody who took them; the victim had acknowledged what it queued.
    expect(undeliveredOf(node)).toBeGreaterThan(0);
    expect(undeliveredOf(node)).toBeLessThanOrEqual(handedOver);
    expect(node.transport.stats()).toMatchObject({
      ...{ undelivered: undeliveredOf(node), queuedOutBytes: 0, queuedOutMessages: 0, waitingSends: 0 },
    });
    await expectStillUsable(net, node);
  });

  test("while small messages flow to it loses none without telling", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node");
    const options = { nodeId: "victim", listen: "127.0.0.1:0" };
    await using child = await Child.start({ role: "sink", options, count: 1e9, bytes: 500 });
    await node.transport.connect(child.address);
    let accepted = 0;
    let stop: Error | null = null;
    const message = messageOf(500, 0);
    const view = new DataView(message.buffer);
    const flowing = (async () => {
      for (let n = 0; stop === null; n++) {
        view.setUint32(16, n, true);
        await node.transport.send("victim", message).then(
          () => accepted++,
          (error: Error) => (stop = error),
        );
        if (n % 100 === 0) await Bun.sleep(0);
      }
    })();
    await until(() => accepted > 5_000, "messages to flow");
    await child.kill();
    await within(flowing, "the flow to stop");
    expect(String(stop)).toContain("victim");
    await until(() => node.transport.stats().queuedOutMessages === 0, "the queue to be given up");
    // Everything handed over is either with the kernel and acknowledged, or reported.
    const { messagesOut, undelivered } = node.transport.stats();
    expect(undeliveredOf(node)).toBe(undelivered);
    expect(accepted - messagesOut).toBeLessThanOrEqual(undelivered);
  });

  test("by freezing it is gone after three keepalives", async () => {
    await using net = new Net();
    const node = await net.node("node", { limits: { keepaliveMillis: 50 } });
    const options = { nodeId: "victim", listen: "127.0.0.1:0" };
    await using child = await Child.start({ role: "idle", options });
    await node.transport.connect(child.address);
    child.freeze();
    expect(await node.untilError("ERR_ZAP_CONNECTION_LOST", "victim")).toContain("silent for 150 ms");
    expect(node.transport.peers()).toEqual([]);
  });
});

describe("messages that had been handed over", () => {
  test("and were on their way when the connection broke are reported, by count", async () => {
    await using net = new Net({ limits: { sendMillis: 200 } });
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw", 1);
    for (let n = 0; n < 10; n++) await node.send("raw", messageOf(64, n));
    for (let n = 0; n < 10; n++) await raw.message();
    // It acknowledges four of them and breaks off.
    raw.write(joined(frameOf(Uint8Array.fromHex("01 0400000000000000".replace(" ", "")))));
    await until(() => raw.unsentBytes === 0, "the acknowledgement to be out");
    await Bun.sleep(20);
    raw.terminate();
    const text = await node.untilError("ERR_ZAP_UNDELIVERED", "raw");
    expect(text).toStartWith("6 messages were handed over for peer raw and not delivered");
    expect([undeliveredOf(node), node.transport.stats().undelivered]).toEqual([6, 6]);
  });

  test("and wait for a peer that does not come back are reported after limits.sendMillis", async () => {
    await using net = new Net({ limits: { sendMillis: 200 } });
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw");
    raw.pause();
    let accepted = 0;
    for (; accepted < 1_000; accepted++) {
      if (!node.transport.trySend("raw", messageOf(60 * KIB, accepted))) break;
      await Bun.sleep(0);
    }
    const queued = node.transport.stats().queuedOutMessages;
    expect(queued).toBeGreaterThan(3);
    raw.terminate();
    await node.untilError("ERR_ZAP_UNDELIVERED", "raw");
    // The last frame on the connection was cut, so it counts among those that are still queued.
    expect(undeliveredOf(node)).toBe(queued);
    expect(node.transport.stats()).toMatchObject({
      queuedOutMessages: 0,
      queuedOutBytes: 0,
      undelivered: queued,
    });
  });
});
