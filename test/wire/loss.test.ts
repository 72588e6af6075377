import { describe, expect, test } from "bun:test";
import { Child } from "../support/child.ts";
import { frameOf, helloOf, joined, messageOf, numberOf } from "../support/messages.ts";
import { freeAddresses, Net, type Node } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { failureOf, isSettled, until, within } from "../support/wait.ts";

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
    await Bun.sleep(100);
    const handedOver = sends.filter((one) => one.settled).length;
    expect(handedOver).toBeLessThan(40);
    await child.kill();
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

describe("a peer that comes back at its address", () => {
  test("is connected with again, and gets what waited for it", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 20, reconnectMaxMillis: 100 } });
    const [address] = freeAddresses(1);
    const a = await net.node("a", { peers: { b: address ?? "" } });
    let b = await net.node("b", { listen: address ?? "" });
    await a.untilPeers(1);
    for (let round = 0; round < 5; round++) {
      await a.send("b", messageOf(64, 0));
      expect(numberOf((await b.recv()).message)).toBe(0);
      await b.close();
      await a.untilPeers(0);
      const sends = [1, 2, 3].map((n) => a.transport.send("b", messageOf(n === 2 ? 300 * KIB : 64, n)));
      expect(await isSettled(Promise.race(sends))).toBe(false);
      await Bun.sleep(30 * round);
      b = await net.node("b", { listen: address ?? "" });
      for (let n = 1; n <= 3; n++) expect(numberOf((await b.recv()).message)).toBe(n);
      await within(Promise.all(sends), "the sends that waited");
    }
    expect(a.transport.stats()).toMatchObject({ undelivered: 0, queuedOutBytes: 0, waitingSends: 0 });
  });

  test("is dialled again with growing pauses", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const limits = { reconnectMinMillis: 20, reconnectMaxMillis: 160 };
    const node = await net.node("node", { limits, peers: { b: listener.address } });
    const dialledAt: number[] = [];
    for (let i = 0; i < 7; i++) {
      const socket = await listener.socket(i);
      dialledAt.push(performance.now());
      socket.terminate();
    }
    const pauses = dialledAt.slice(1).map((at, i) => at - (dialledAt[i] ?? 0));
    // Full pauses are 20, 40, 80, 160, 160, 160 ms, with jitter over the upper half.
    for (const [i, full] of [20, 40, 80, 160, 160, 160].entries()) {
      expect(pauses[i] ?? 0).toBeGreaterThanOrEqual(full / 2 - 5);
    }
    expect(node.errors.filter((error) => error.peer === "b").length).toBeLessThan(3);
  });

  test("does not get twice what it took before it went", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 20, reconnectMaxMillis: 50 } });
    using listener = new RawListener();
    const node = await net.node("node", { peers: { b: listener.address } });
    const got: number[] = [];
    const sending = (async () => {
      // A large message that is cut three times is given up; those behind it are not.
      for (let n = 0; n < 3_000; n++) {
        await node.transport.send("b", messageOf(n % 50 === 0 ? 200 * KIB : 700, n)).catch(() => {});
      }
    })();
    let over = false;
    void sending.then(() => (over = true));
    for (let i = 0; !over || node.transport.stats().queuedOutMessages > 0; i++) {
      const socket = await listener.socket(i);
      socket.write(helloOf("b"));
      await socket.frame();
      // Reads a part of what comes, and goes, often in the middle of a frame.
      await Promise.race([Bun.sleep(5 + (i % 7)), until(() => socket.closed, "its end")]);
      socket.pause();
      for (let next = wholeFrame(socket.received); next !== null; next = wholeFrame(socket.received)) {
        if (next.length >= 16) got.push(numberOf(next));
        socket.received = socket.received.subarray(4 + next.length);
      }
      socket.terminate();
    }
    // A peer of another make acknowledges nothing, so what the kernel had taken at its end is lost; but nothing comes twice,
    // and nothing out of order.
    for (let i = 1; i < got.length; i++) expect(got[i]).toBeGreaterThan(got[i - 1] ?? 0);
    expect(got.length).toBeGreaterThan(100);
    expect(new Set(got).size).toBe(got.length);
  }, 10_000);

  test("and never survives one message gets those behind it; that one is given up, and its sender told", async () => {
    await using net = new Net({
      limits: { reconnectMinMillis: 10, reconnectMaxMillis: 20, frameBytes: 64 * MIB },
    });
    using listener = new RawListener();
    const node = await net.node("node", { peers: { b: listener.address } });
    // More than the kernel's buffers take.
    const poison = node.transport.send("b", messageOf(40 * MIB, 0));
    poison.catch(() => {});
    const next = node.transport.send("b", messageOf(64, 1));
    for (let i = 0; i < 3; i++) {
      const socket = await listener.socket(i);
      socket.write(helloOf("b"));
      await until(() => socket.received.length > 50 * KIB || socket.closed, "the middle of the message");
      socket.terminate();
    }
    const error = await failureOf(poison);
    expect([error.code, error.message]).toEqual([
      "ERR_ZAP_CONNECTION_LOST",
      expect.stringContaining("in the middle of one message"),
    ]);
    const socket = await listener.socket(3);
    socket.write(helloOf("b"));
    await socket.frame();
    expect(numberOf(await socket.message())).toBe(1);
    await within(next, "the next send");
    expect(node.transport.stats()).toMatchObject({ undelivered: 0, queuedOutBytes: 0, queuedOutMessages: 0 });
  });

  test("is dialled at once when somebody wants to send, however long the pause", async () => {
    await using net = new Net();
    const [address] = freeAddresses(1);
    const limits = { reconnectMinMillis: 20, reconnectMaxMillis: 60_000, sendMillis: 3_000 };
    const a = await net.node("a", { limits, peers: { b: address ?? "" } });
    await Bun.sleep(800);
    const b = await net.node("b", { listen: address ?? "" });
    await within(a.transport.send("b", messageOf(64, 1)), "the send", 2_500);
    expect(numberOf((await b.recv()).message)).toBe(1);
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

function wholeFrame(bytes: Uint8Array): Uint8Array | null {
  if (bytes.length < 4) return null;
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  return bytes.length >= 4 + length ? bytes.subarray(4, 4 + length) : null;
}
