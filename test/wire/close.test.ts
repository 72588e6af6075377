import { describe, expect, test } from "bun:test";
import { ackOf, helloOf, messageOf } from "../support/messages.ts";
import { Net } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { failureOf, until, within } from "../support/wait.ts";

const KIB = 1024;

describe("close", () => {
  test("flushes what was accepted, small and large, to every peer", async () => {
    await using net = new Net();
    const a = await net.node("a");
    const others = await Promise.all([0, 1, 2].map((i) => net.node(`peer-${i}`)));
    for (const other of others) await a.transport.connect(other.address);
    const sizes = [20, 300, 5_000, 200 * KIB, 64];
    const sends = others.flatMap((other) =>
      Array.from({ length: 25 }, (_, n) => a.transport.send(other.id, messageOf(sizes[n % 5] ?? 20, n))),
    );
    const outcomes = Promise.allSettled(sends);
    const closing = a.close();
    const accepted = (await outcomes).filter((outcome) => outcome.status === "fulfilled").length;
    expect(accepted).toBeGreaterThan(10);
    expect(await closing).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    for (const other of others) await other.untilPeers(0);
    const arrived = others.reduce((sum, other) => sum + other.transport.stats().messagesIn, 0);
    expect(arrived).toBe(accepted);
    for (const other of others) {
      const { messagesIn } = other.transport.stats();
      const counts = await other.takeNumbered(messagesIn);
      expect(counts.get("a")).toBe(messagesIn);
      expect(other.troubles).toEqual([]);
    }
    expect(a.troubles).toEqual([]);
  });

  test("resolves soon where everybody listens, long before limits.closeMillis", async () => {
    await using net = new Net({ limits: { closeMillis: 60_000 } });
    const [a, b] = await net.pair();
    await a.sendNumbered("b", 100, 1_000);
    await within(a.transport.close(), "close", 1_000);
    await within(b.transport.close(), "close", 1_000);
  });

  test("of both sides at the same time loses nothing of what either had accepted", async () => {
    for (let round = 0; round < 30; round++) {
      await using net = new Net();
      const [a, b] = await net.pair();
      const bytes = round % 3 === 0 ? 100 * KIB : 500;
      await Promise.all([a.sendNumbered("b", 5, bytes), b.sendNumbered("a", 5, bytes)]);
      const [fromA, fromB] = await within(
        Promise.all([a.transport.close(), b.transport.close()]),
        "both",
        3_000,
      );
      // What had come before is unread here; what came after is not acknowledged, and counted there.
      expect(fromA.undelivered + fromB.unread).toBeGreaterThanOrEqual(5);
      expect(fromB.undelivered + fromA.unread).toBeGreaterThanOrEqual(5);
    }
  });

  test("is the same a second time", async () => {
    await using net = new Net();
    const [a] = await net.pair();
    const [first, second] = [a.transport.close(), a.transport.close()];
    expect(await second).toEqual(await first);
    expect(await a.transport.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
  });

  test("of a node that never met anybody is at once", async () => {
    await using net = new Net();
    const a = await net.node("a", { listen: [] });
    expect(await within(a.transport.close(), "close", 200)).toEqual({
      undelivered: 0,
      unread: 0,
      buffers: 0,
    });
  });

  test("counts what had come and nobody took", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    for (let n = 0; n < 7; n++) await a.send("b", messageOf(64, n));
    await until(() => b.transport.stats().queuedInMessages === 7, "all to be queued");
    await b.recv();
    expect(await b.transport.close()).toEqual({ undelivered: 0, unread: 6, buffers: 0 });
  });

  test("tells the sender of what came too late", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    for (let n = 0; n < 3; n++) await a.send("b", messageOf(64, n));
    for (let n = 0; n < 3; n++) await b.recv();
    const closing = b.transport.close();
    // Handed over by a before it knows; b takes nothing any more.
    expect(a.transport.trySend("b", messageOf(64, 3))).toBe(true);
    expect(a.transport.trySend("b", messageOf(64, 4))).toBe(true);
    const { unread } = await closing;
    await a.untilPeers(0);
    await until(() => a.transport.stats().queuedOutMessages === 0, "a to give them up", 6_000);
    // Each is known to one side at least: thrown away there, or reported as undelivered here.
    expect(unread + a.transport.stats().undelivered).toBeGreaterThanOrEqual(2);
    expect(a.transport.stats().undelivered).toBe(2);
  }, 8_000);

  test("acknowledges what was taken, also where the other side is in the middle of a large frame", async () => {
    for (let round = 0; round < 40; round++) {
      await using net = new Net({ limits: { sendMillis: 100 } });
      const [a, b] = await net.pair();
      // b takes ten messages of a, and sends without end.
      await a.sendNumbered("b", 10, 64);
      await b.takeNumbered(10);
      let stop = false;
      const flowing = (async () => {
        for (let n = 0; !stop; n++)
          await b.transport.send("a", messageOf(round % 2 === 0 ? 400 * KIB : 20 * KIB, n));
      })();
      flowing.catch(() => {});
      await a.recv();
      await Bun.sleep(round % 5);
      const { undelivered } = await a.close();
      stop = true;
      expect(undelivered).toBe(0);
      expect(a.errors.filter((error) => error.code === "ERR_ZAP_UNDELIVERED")).toEqual([]);
    }
  }, 10_000);
});

describe("after close has begun", () => {
  test("waiting and further calls reject with ClosedError", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 20 } });
    using listener = new RawListener();
    const a = await net.node("a", { peers: { nobody: "127.0.0.1:1" } });
    const waiting: [string, Promise<unknown>][] = [
      ["recv", a.transport.recv()],
      ["recv with a signal", a.transport.recv({ signal: new AbortController().signal })],
      ["send", a.transport.send("nobody", messageOf(64))],
      ["send of a large message", a.transport.send("nobody", messageOf(300 * KIB))],
      ["connect", a.transport.connect(listener.address)],
    ];
    const socket = await listener.socket();
    await socket.frame();
    const closing = a.transport.close();
    for (const [what, promise] of waiting) {
      const error = await failureOf(promise, 1_000);
      expect([what, error.code, error.name]).toEqual([what, "ERR_ZAP_CLOSED", "ClosedError"]);
    }
    for (const promise of [
      a.transport.recv(),
      a.transport.send("nobody", messageOf(64)),
      a.transport.connect(listener.address),
    ]) {
      expect((await failureOf(promise, 200)).code).toBe("ERR_ZAP_CLOSED");
    }
    expect(() => a.transport.trySend("nobody", messageOf(64))).toThrow("closed");
    expect(a.transport.tryRecv()).toBeNull();
    await within(closing, "close");
    await socket.untilClosed();
    expect(a.transport.stats()).toMatchObject({
      waitingSends: 0,
      waitingRecvs: 0,
      handshakes: 0,
      connections: 0,
    });
    expect(a.transport.peers()).toEqual([]);
  });

  test("nobody gets in, and the port is free again", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "slow");
    raw.pause();
    while (node.transport.trySend("slow", messageOf(60 * KIB))) await Bun.sleep(0);
    const closing = node.transport.close();
    const late = await net.node("late", { limits: { sendMillis: 300 } });
    expect((await failureOf(late.transport.connect(node.address))).code).toMatch(/ERR_ZAP/);
    raw.terminate();
    await within(closing, "close");
    const next = await net.node("next", { listen: node.address });
    expect(await late.transport.connect(next.address)).toBe("next");
  });

  test("a connection in handshake is dropped", async () => {
    await using net = new Net({ limits: { closeMillis: 4_000 } });
    const node = await net.node("node");
    const raw = await net.raw(node);
    raw.write(helloOf("slow").subarray(0, 50));
    await until(() => node.transport.stats().handshakes === 1, "the handshake");
    await within(node.transport.close(), "close", 500);
    await raw.untilClosed();
  });

  test("a dial that nobody answers does not hold it up", async () => {
    await using net = new Net({ limits: { closeMillis: 4_000 } });
    // Nothing is routed there: the kernel goes on trying for minutes.
    const node = await net.node("node", { peers: { far: "192.0.2.1:9000" } });
    await Bun.sleep(20);
    await within(node.transport.close(), "close", 500);
  });

  test("an acknowledgement that comes at the last moment still counts", async () => {
    await using net = new Net({ limits: { closeMillis: 1_000 } });
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "kin", 1);
    for (let n = 0; n < 5; n++) await node.send("kin", messageOf(64, n));
    const closing = node.transport.close();
    expect(await raw.numbersToTheEnd()).toEqual([0, 1, 2, 3, 4]);
    raw.write(ackOf(5));
    raw.shutdown();
    expect(await within(closing, "close")).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    expect(node.troubles).toEqual([]);
  });
});
