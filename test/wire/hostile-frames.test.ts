import { describe, expect, test } from "bun:test";
import { ackOf, frameOf, joined, messageOf, numberOf, u32 } from "../support/messages.ts";
import { Net } from "../support/nodes.ts";
import { until } from "../support/wait.ts";

const KIB = 1024;
const LIMITS = { limits: { frameBytes: 100 * KIB, frameMillis: 200 } };

describe("a frame that is not a ZAP message is dropped and counted, and the connection lives on:", () => {
  const cases: [string, Uint8Array, string][] = [
    ["another magic", messageOf(64, 1, { magic: 0x1234_5678 }), "magic"],
    ["another magic, large", messageOf(90 * KIB, 1, { magic: 0 }), "magic"],
    ["version 2", messageOf(64, 1, { version: 2 }), "version"],
    ["version 0", messageOf(16, 1, { version: 0 }), "version"],
    ["a size beyond its end", messageOf(64, 1, { size: 65 }), "size"],
    ["a size of 2^32-1", messageOf(64, 1, { size: 0xffff_ffff }), "size"],
    ["a size below its header", messageOf(64, 1, { size: 15 }), "size"],
    ["a call of a Go node", joined(u32(7), u32(1), messageOf(64, 1)), "magic"],
    ["a response of a Go node", joined(u32(7), u32(2), messageOf(64, 1)), "magic"],
    ["a Go call with its fields the other way round", joined(u32(1), u32(7), messageOf(64, 1)), "magic"],
    ["one byte", Uint8Array.of(1), "short"],
    ["15 bytes", messageOf(16).subarray(0, 15), "short"],
    ["an acknowledgement, from a peer of another make", ackOf(0).subarray(4), "short"],
  ];
  for (const [what, frame, reason] of cases) {
    test(what, async () => {
      await using net = new Net(LIMITS);
      const node = await net.node("node");
      const raw = await net.rawPeer(node, "raw");
      // Whole in one chunk, and in pieces.
      raw.write(joined(frameOf(frame), frameOf(messageOf(64, 2))));
      expect(numberOf((await node.recv()).message)).toBe(2);
      for (const byte of frameOf(frame).subarray(0, 40)) {
        raw.write(Uint8Array.of(byte));
        await Bun.sleep(0);
      }
      raw.write(joined(frameOf(frame).subarray(40), frameOf(messageOf(64, 3))));
      expect(numberOf((await node.recv()).message)).toBe(3);
      expect(node.transport.stats()).toMatchObject({ drops: { [reason]: 2 }, messagesIn: 2, connections: 1 });
      expect(node.troubles).toEqual([]);
    });
  }

  test("an acknowledgement of what was never sent", async () => {
    await using net = new Net(LIMITS);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw", 1);
    raw.write(ackOf(5), ackOf(Number.MAX_SAFE_INTEGER), frameOf(messageOf(64, 2)));
    expect(numberOf((await node.recv()).message)).toBe(2);
    expect(node.transport.stats().drops).toEqual({ ack: 2 });
  });

  test("an acknowledgement that takes one back", async () => {
    await using net = new Net(LIMITS);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw", 1);
    await node.send("raw", messageOf(64, 1));
    await raw.message();
    raw.write(ackOf(1), ackOf(0), ackOf(1), frameOf(messageOf(64, 2)));
    expect(numberOf((await node.recv()).message)).toBe(2);
    expect(node.transport.stats().drops).toEqual({ ack: 1 });
  });

  test("a hundred thousand of them, at no cost to others", async () => {
    await using net = new Net(LIMITS);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw");
    const junk = frameOf(messageOf(20, 0, { magic: 1 }));
    raw.write(joined(...Array.from({ length: 100_000 }, () => junk), frameOf(messageOf(64, 2))));
    expect(numberOf((await node.recv()).message)).toBe(2);
    expect(node.transport.stats().drops).toEqual({ magic: 100_000 });
  });
});

describe("empty frames", () => {
  test("mean nothing", async () => {
    await using net = new Net(LIMITS);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw");
    raw.write(...Array.from({ length: 1_000 }, () => u32(0)), frameOf(messageOf(64, 2)), u32(0), u32(0));
    expect(numberOf((await node.recv()).message)).toBe(2);
    expect(node.transport.stats()).toMatchObject({ drops: {}, messagesIn: 1, queuedInBytes: 0 });
  });
});

describe("a frame above the limit", () => {
  for (const length of [100 * KIB + 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]) {
    test(`of ${length} bytes ends the connection with an error that names the peer and the limit`, async () => {
      await using net = new Net(LIMITS);
      const node = await net.node("node");
      const raw = await net.rawPeer(node, "raw");
      raw.write(frameOf(messageOf(64, 1)), u32(length), new Uint8Array(1_000));
      await raw.untilClosed();
      const text = await node.untilError("ERR_ZAP_FRAME_TOO_LARGE", "raw");
      expect(text).toContain("raw");
      expect(text).toContain(`${length} bytes`);
      expect(text).toContain("limits.frameBytes is 102400");
      // What came before it is not lost.
      expect(numberOf((await node.recv()).message)).toBe(1);
      expect(node.events.find((event) => event.type === "disconnected")).toMatchObject({
        peer: "raw",
        error: { code: "ERR_ZAP_FRAME_TOO_LARGE" },
      });
    });
  }

  test("by one byte is one; by none is not", async () => {
    await using net = new Net(LIMITS);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw");
    raw.writeFrame(messageOf(100 * KIB, 1));
    expect(numberOf((await node.recv()).message)).toBe(1);
    raw.writeFrame(messageOf(100 * KIB + 1, 2));
    await node.untilError("ERR_ZAP_FRAME_TOO_LARGE", "raw");
  });
});

describe("a frame that does not end", () => {
  test("in time ends the connection, however steadily its bytes come", async () => {
    await using net = new Net(LIMITS);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw");
    const frame = frameOf(messageOf(1_000, 1));
    const before = performance.now();
    for (let i = 0; !raw.closed && !raw.ended && i < 200; i++) {
      raw.write(frame.subarray(i, i + 1));
      await Bun.sleep(20);
    }
    expect(performance.now() - before).toBeLessThan(2_000);
    const text = await node.untilError("ERR_ZAP_CONNECTION_LOST", "raw");
    expect(text).toContain("limits.frameMillis");
    expect(node.transport.stats()).toMatchObject({ connections: 0, messagesIn: 0 });
  });

  test("in time, of those that are passed over, ends it too", async () => {
    await using net = new Net(LIMITS);
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw");
    raw.write(frameOf(messageOf(1_000, 1, { magic: 1 })).subarray(0, 500));
    await raw.untilClosed(2_000);
    expect(await node.untilError("ERR_ZAP_CONNECTION_LOST", "raw")).toContain("limits.frameMillis");
  });

  test("with the connection is an error", async () => {
    for (const how of ["shutdown", "terminate"] as const) {
      for (const bytes of [2, 10, 500, 70 * KIB]) {
        await using net = new Net();
        const node = await net.node("node");
        const raw = await net.rawPeer(node, "raw");
        raw.write(frameOf(messageOf(64, 1)), frameOf(messageOf(90 * KIB, 2)).subarray(0, bytes));
        expect(numberOf((await node.recv()).message)).toBe(1);
        raw[how]();
        const text = await node.untilError("ERR_ZAP_CONNECTION_LOST", "raw");
        expect(text).toMatch(how === "shutdown" ? /middle of a frame/ : /middle of a frame|ECONNRESET|broke/);
        expect(node.transport.stats()).toMatchObject({ connections: 0, queuedInBytes: 0 });
      }
    }
  });

  test("does not count the time in which nobody here reads", async () => {
    await using net = new Net({ limits: { frameMillis: 150, recvQueueBytes: 10 * KIB, closeMillis: 500 } });
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "raw");
    const half = frameOf(messageOf(64, 99));
    const frames = Array.from({ length: 20 }, (_, n) => frameOf(messageOf(1_000, n)));
    raw.write(joined(...frames, half.subarray(0, 30)));
    // The queue is full, and the node stops reading in the middle of the last frame.
    await until(() => node.transport.stats().queuedInMessages === 20, "the queue to be full");
    await Bun.sleep(300);
    expect(node.troubles).toEqual([]);
    for (let n = 0; n < 20; n++) expect(numberOf((await node.recv()).message)).toBe(n);
    // Nor is it made up for all at once.
    await Bun.sleep(100);
    raw.write(half.subarray(30));
    expect(numberOf((await node.recv()).message)).toBe(99);
    expect(node.troubles).toEqual([]);
  });
});

describe("a peer that is silent", () => {
  test("for limits.idleMillis is gone, if it is of another make; keepalives keep it", async () => {
    await using net = new Net({ limits: { idleMillis: 150, keepaliveMillis: 50 } });
    const node = await net.node("node");
    const [quiet, polite] = [await net.rawPeer(node, "quiet"), await net.rawPeer(node, "polite")];
    const timer = setInterval(() => polite.write(u32(0)), 30);
    expect(await node.untilError("ERR_ZAP_CONNECTION_LOST", "quiet")).toContain("silent for 150 ms");
    await quiet.untilClosed();
    await Bun.sleep(200);
    expect(node.transport.peers()).toEqual(["polite"]);
    // And the node sent keepalives of its own.
    expect(polite.received.length).toBeGreaterThanOrEqual(4);
    expect(polite.received.every((byte) => byte === 0)).toBe(true);
    clearInterval(timer);
  });

  test("for three keepalives is gone, if it is of this library; two of it stay connected without a word", async () => {
    await using net = new Net({ limits: { keepaliveMillis: 40 } });
    const [a, b] = await net.pair();
    const mute = await net.rawPeer(b, "mute", 1);
    expect(await b.untilError("ERR_ZAP_CONNECTION_LOST", "mute")).toContain("silent for 120 ms");
    await mute.untilClosed();
    await Bun.sleep(300);
    expect(b.transport.peers()).toEqual(["a"]);
    expect(a.troubles).toEqual([]);
  });

  test("because the whole process stood still is not gone", async () => {
    await using net = new Net({ limits: { keepaliveMillis: 30, frameMillis: 60 } });
    const [a, b] = await net.pair();
    for (let i = 0; i < 3; i++) {
      // A long calculation, a suspended virtual machine: no timer, no read, for longer than every limit.
      const end = performance.now() + 250;
      while (performance.now() < end);
      await a.send("b", messageOf(64, i));
      expect(numberOf((await b.recv()).message)).toBe(i);
    }
    expect([...a.troubles, ...b.troubles]).toEqual([]);
  });

  test("because this node does not read is not gone", async () => {
    await using net = new Net({ limits: { keepaliveMillis: 30, recvQueueBytes: 10 * KIB } });
    const [a, b] = await net.pair();
    const sending = a.sendNumbered("b", 5_000, 2_000);
    await until(() => b.transport.stats().queuedInMessages > 0, "something to be queued");
    await Bun.sleep(300);
    expect([...a.troubles, ...b.troubles]).toEqual([]);
    await Promise.all([sending, b.takeNumbered(5_000)]);
  });
});
