import { describe, expect, test } from "bun:test";
import { messageOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { failureOf, until, within } from "../support/wait.ts";

describe("the default transport", () => {
  test("says what it is", async () => {
    await using net = new Net();
    const { transport } = await net.node("a");
    expect([transport.name, transport.nodeId, transport.poolBytes]).toEqual(["default", "a", 0]);
    expect(transport.caps).toMatchObject({ gpuResident: false, zeroCopy: false });
    expect(transport.addresses).toEqual([expect.stringMatching(/^127\.0\.0\.1:[1-9]\d*$/)]);
    expect(transport.selection).toMatchObject({ name: "default", tried: [{ name: "default", code: "ok" }] });
  });

  test("has no managed memory, and says to use the heap", async () => {
    await using net = new Net();
    const { transport } = await net.node("a");
    for (const size of [0, 1, 1024 ** 3, -1]) {
      const error = await failureOf(transport.allocBuffer(size));
      expect(error.code).toBe("ERR_ZAP_NOT_AVAILABLE");
      expect(error.message).toContain("heap");
    }
  });

  test("is closed at the end of its scope", async () => {
    await using net = new Net();
    const b = await net.node("b");
    const a = await net.node("a");
    {
      await using scoped = a.transport;
      await scoped.connect(b.address);
      await b.untilPeers(1);
    }
    await b.untilPeers(0);
    expect((await failureOf(a.transport.recv())).code).toBe("ERR_ZAP_CLOSED");
  });
});

describe("stats", () => {
  test("count messages and bytes, framing left out, on both sides", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    for (const bytes of [16, 100, 200_000]) await Promise.all([a.send("b", messageOf(bytes)), b.recv()]);
    await b.send("a", messageOf(50));
    await a.recv();
    await until(() => b.transport.stats().messagesOut === 1, "the answer to be out");
    const common = { connections: 1, handshakes: 0, drops: {}, undelivered: 0 };
    const idle = {
      ...{ queuedOutMessages: 0, queuedOutBytes: 0, queuedInMessages: 0, queuedInBytes: 0 },
      ...{ waitingSends: 0, waitingRecvs: 0 },
    };
    const [few, many] = [
      { messages: 1, bytes: 50 },
      { messages: 3, bytes: 200_116 },
    ];
    const flows = (incoming: typeof few, outgoing: typeof few) => ({
      ...{ messagesIn: incoming.messages, bytesIn: incoming.bytes },
      ...{ messagesOut: outgoing.messages, bytesOut: outgoing.bytes },
    });
    for (const [node, flow] of [
      [a, flows(few, many)],
      [b, flows(many, few)],
    ] as const) {
      // Everything that Bun reads is copied out of its receive buffer.
      const { bytesCopied, ...counted } = node.transport.stats();
      expect(counted).toEqual({ ...common, ...idle, ...flow });
      expect(bytesCopied).toBeGreaterThanOrEqual(flow.bytesIn);
    }
  });

  test("show what is queued and who waits, now", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    for (let n = 0; n < 10; n++) await a.send("b", messageOf(1_000, n));
    await until(() => b.transport.stats().queuedInMessages === 10, "all to be queued");
    expect(b.transport.stats().queuedInBytes).toBeGreaterThanOrEqual(10_000);
    for (let n = 0; n < 10; n++) await b.recv();
    expect(b.transport.stats()).toMatchObject({ queuedInMessages: 0, queuedInBytes: 0 });
    const waiting = [b.transport.recv(), b.transport.recv()];
    expect(b.transport.stats().waitingRecvs).toBe(2);
    await Promise.all([0, 1].map((n) => a.send("b", messageOf(64, n))));
    await within(Promise.all(waiting), "both");
    expect(b.transport.stats().waitingRecvs).toBe(0);
  });

  test("are a snapshot that nobody can change", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const raw = await net.rawPeer(b, "raw");
    raw.writeFrame(new Uint8Array(20));
    await until(() => b.transport.stats().drops["magic"] === 1, "the drop");
    const before = b.transport.stats();
    (before.drops as Record<string, number>)["magic"] = 99;
    expect(b.transport.stats().drops).toEqual({ magic: 1 });
    await a.send("b", messageOf(64));
    await b.recv();
    expect([before.messagesIn, b.transport.stats().messagesIn]).toEqual([0, 1]);
  });
});

describe("events", () => {
  const story = (node: Node) =>
    node.events.map((event) => ("dialled" in event ? `${event.type} ${event.dialled}` : event.type));

  test("tell of coming and going, once each, with the peer and who dialled", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    expect(a.events).toEqual([{ type: "connected", peer: "b", address: b.address, dialled: true }]);
    expect(b.events).toEqual([
      { type: "connected", peer: "a", address: expect.stringContaining("127.0.0.1:"), dialled: false },
    ]);
    await a.close();
    await b.untilPeers(0);
    expect(story(a)).toEqual(["connected true", "disconnected"]);
    expect(story(b)).toEqual(["connected false", "disconnected"]);
    expect(b.events[1]).toEqual({ type: "disconnected", peer: "a", error: null });
  });

  test("come in order and outside of calls, and a listener that throws stops nothing", async () => {
    await using net = new Net();
    const reported: unknown[] = [];
    const original = globalThis.reportError;
    globalThis.reportError = (error: unknown) => void reported.push(error);
    try {
      const seen: string[] = [];
      const events = (type: string): void => {
        seen.push(type);
        throw new Error(`the listener's own bug at ${type}`);
      };
      const b = await net.node("b");
      const { pick } = await import("../../lib/transport/index.ts");
      const env = { ZAP_TRANSPORT_QUIET: "1" };
      const a = await pick("default", { nodeId: "a", env, onEvent: (event) => events(event.type) });
      await a.connect(b.address);
      await a.send("b", messageOf(64));
      expect((await b.recv()).peer).toBe("a");
      await a.close();
      await until(() => seen.length === 2, "both events");
      expect(seen).toEqual(["connected", "disconnected"]);
      expect(reported.map(String)).toEqual([
        "Error: the listener's own bug at connected",
        "Error: the listener's own bug at disconnected",
      ]);
    } finally {
      globalThis.reportError = original;
    }
  });

  test("report envelopes that were collected without release, with their peer and number", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const careless = async (): Promise<void> => {
      for (let n = 0; n < 5; n++) await within(b.transport.recv(), "a message");
    };
    await a.sendNumbered("b", 5);
    await careless();
    const unreleased = () => b.events.filter((event) => event.type === "unreleased");
    const count = () => unreleased().reduce((sum, event) => sum + event.envelopes, 0);
    for (let i = 0; i < 100 && count() < 5; i++) {
      // More traffic, so that nothing in the transport still points at the last chunk.
      await a.send("b", messageOf(64, 9));
      await b.recv();
      await Bun.sleep(1);
      Bun.gc(true);
    }
    // The collector is conservative: one may live on through a stale pointer on the stack.
    expect(count()).toBeGreaterThanOrEqual(4);
    expect(count()).toBeLessThanOrEqual(5);
    expect(new Set(unreleased().map((event) => event.peer))).toEqual(new Set(["a"]));
  });

  test("report none where every envelope was released", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    for (let n = 0; n < 50; n++) {
      await a.send("b", messageOf(n % 10 === 0 ? 100_000 : 64, n));
      await b.recv();
    }
    for (let i = 0; i < 5; i++) {
      await Bun.sleep(1);
      Bun.gc(true);
    }
    expect(b.events.filter((event) => event.type === "unreleased")).toEqual([]);
  });
});
