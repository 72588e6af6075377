import { describe, expect, test } from "bun:test";
import { UndeliveredError } from "../../../lib/errors/index.ts";
import { isMessage, messageOf, numberOf } from "../../support/messages.ts";
import { failureOf, isSettled, until, within } from "../../support/wait.ts";
import { turns, WireOnDouble } from "./engine-double.ts";

describe("sending over the send ring", () => {
  test("what is handed over is there at once, copied, and its memory is used again", async () => {
    await using node = await WireOnDouble.open({ double: { startAt: 2n ** 32n - 20n } });
    const { double, wire } = node;
    await node.connected();
    const message = messageOf(300, 0);
    for (let round = 0; round < 40; round++) {
      for (let number = 0; number < 20; number++) {
        message.set(messageOf(300, number));
        await wire.send("them", message);
        message.fill(0);
      }
      const sent = double.takeSends();
      expect(sent.map(({ bytes }) => numberOf(bytes))).toEqual(
        Array.from({ length: 20 }, (_, number) => number),
      );
      expect(sent.every(({ bytes, flow }) => isMessage(bytes, numberOf(bytes)) && flow === 1)).toBe(true);
      for (const { token } of sent.reverse()) double.done(token);
    }
    await wire.send("them", messageOf(64, 1));
    expect(wire.stats()).toMatchObject({ messagesOut: 800, bytesOut: 240_000, queuedOutMessages: 1 });
    expect(wire.memory.pool.stats().buffers).toBeLessThan(3);
  });

  test("waits in order while a peer's queue is full, and is woken by what comes back", async () => {
    await using node = await WireOnDouble.open({ limits: { sendQueueBytes: 1_000 } });
    const { double, wire } = node;
    await node.connected();
    await wire.send("them", messageOf(600, 0));
    expect(wire.trySend("them", messageOf(600, 9))).toBe(false);
    const order: number[] = [];
    const waits = [1, 2].map((number) =>
      wire.send("them", messageOf(600, number)).then(() => order.push(number)),
    );
    expect(await isSettled(Promise.race(waits))).toBe(false);
    expect(wire.stats().waitingSends).toBe(2);
    expect(double.dones.armed).toBe(true);
    for (let number = 0; number < 3; number++) {
      const [sent] = double.takeSends();
      expect(numberOf(sent!.bytes)).toBe(number);
      double.done(sent!.token);
      await turns();
    }
    await within(Promise.all(waits), "both");
    expect(order).toEqual([1, 2]);
    expect(double.dones.armed).toBe(false);
    expect(wire.trySend("them", messageOf(64, 3))).toBe(true);
  });

  test("the limit over all peers holds, and a peer with nothing on its way passes one message", async () => {
    await using node = await WireOnDouble.open({ limits: { totalQueueBytes: 1_000 } });
    const { double, wire } = node;
    await node.connected(1, "a");
    await node.connected(2, "b");
    await wire.send("a", messageOf(900, 0));
    const second = wire.send("a", messageOf(200, 1));
    await wire.send("b", messageOf(2_000, 2));
    expect(await isSettled(second)).toBe(false);
    for (const { token } of double.takeSends()) double.done(token);
    await within(second, "the second message");
  });

  test("not more messages are on their way to one peer than the node has room for", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    for (let number = 0; number < 1_024; number++)
      expect(wire.trySend("them", messageOf(20, number))).toBe(true);
    expect(wire.trySend("them", messageOf(20, 0))).toBe(false);
    double.done(double.takeSends()[0]!.token);
    expect(wire.trySend("them", messageOf(20, 0))).toBe(true);
  });

  test("an abort takes a message that waits back, and those behind it move up", async () => {
    await using node = await WireOnDouble.open({ limits: { sendQueueBytes: 1_000 } });
    const { double, wire } = node;
    await node.connected();
    await wire.send("them", messageOf(900, 0));
    const abort = new AbortController();
    const large = wire.send("them", messageOf(500, 1), abort.signal);
    const small = wire.send("them", messageOf(50, 2));
    expect(await isSettled(small)).toBe(false);
    abort.abort();
    expect((await failureOf(large)).code).toBe("ERR_ZAP_ABORTED");
    await within(small, "the small one");
    expect(double.takeSends().map(({ bytes }) => numberOf(bytes))).toEqual([0, 2]);
    expect((await failureOf(wire.send("them", messageOf(64, 0), AbortSignal.abort()))).code).toBe(
      "ERR_ZAP_ABORTED",
    );
  });

  test("a large message in a buffer of the pool is sent where it lies, and send resolves when it has come back", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    const buffer = await wire.memory.pool.alloc(20_000);
    buffer.bytes.set(messageOf(20_000, 5));
    expect(wire.trySend("them", buffer.bytes)).toBe(false);
    const sending = wire.send("them", buffer.bytes);
    const [sent] = double.takeSends();
    expect(sent!.address).toBe(buffer.address);
    expect(await isSettled(sending)).toBe(false);
    double.done(sent!.token);
    await within(sending, "the message");
    const small = buffer.bytes.subarray(0, 2_000);
    small.set(messageOf(2_000, 6));
    await wire.send("them", small);
    expect(double.takeSends()[0]!.address).not.toBe(buffer.address);
    buffer.release();
  });

  test("so is a received message that is passed on", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    double.deliver(1, messageOf(50_000, 7));
    const envelope = await wire.recv();
    const sending = wire.send("them", envelope.message);
    const [sent] = double.takeSends();
    expect(isMessage(sent!.bytes, 7)).toBe(true);
    expect(wire.stats().queuedOutBytes).toBe(50_000);
    double.done(sent!.token, false);
    expect((await failureOf(sending)).code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    envelope.release();
    // Whoever was told by a rejection is not told again.
    double.down({ flow: 1, reason: 64, undelivered: 1 });
    await turns();
    expect(node.kinds()).not.toContain("ERR_ZAP_UNDELIVERED");
  });

  test("a pool that its user has emptied holds up large messages, not small ones", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    const { pool } = wire.memory;
    const held = [];
    for (let next = pool.tryAlloc(2 ** 20); next !== null; next = pool.tryAlloc(2 ** 20)) held.push(next);
    for (let next = pool.tryAlloc(2 ** 15); next !== null; next = pool.tryAlloc(2 ** 15)) held.push(next);
    const large = wire.send("them", messageOf(500_000, 1));
    expect(await isSettled(large)).toBe(false);
    double.up({ flow: 2, id: "other" });
    await turns();
    await within(wire.send("other", messageOf(1_000, 2)), "a small one");
    for (const each of held) each.release();
    await within(large, "the large one");
    expect(double.takeSends().map(({ bytes }) => numberOf(bytes))).toEqual([2, 1]);
  });

  test("refuses what is no message, too large, or for nobody", async () => {
    await using node = await WireOnDouble.open();
    const { wire } = node;
    await node.connected();
    expect((await failureOf(wire.send("them", new Uint8Array(64)))).code).toBe("ERR_ZAP_MESSAGE_MAGIC");
    expect((await failureOf(wire.send("them", messageOf(2 ** 20 + 8)))).code).toBe("ERR_ZAP_FRAME_TOO_LARGE");
    expect((await failureOf(wire.send("nobody", messageOf(64)))).code).toBe("ERR_ZAP_UNKNOWN_PEER");
    expect(() => wire.trySend("nobody", messageOf(64))).toThrow("no peer");
  });

  test("a loop that only sends lets timers run", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    let [sent, at] = [0, -1];
    const message = messageOf(64, 0);
    setImmediate(() => (at = sent));
    for (; sent < 30_000; sent++) {
      await wire.send("them", message);
      for (const { token } of double.takeSends()) double.done(token);
    }
    expect(at).toBeLessThan(10_000);
  });

  test("messages of a flow that ends are reported as undelivered, once", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    for (let number = 0; number < 3; number++) await wire.send("them", messageOf(64, number));
    const [first, ...rest] = double.takeSends();
    double.done(first!.token);
    for (const { token } of rest) double.done(token, false);
    double.down({ flow: 1, reason: 64, undelivered: 2 });
    await turns();
    await Bun.sleep(150);
    const told = node.events.filter(
      (event) => event.type === "error" && event.error instanceof UndeliveredError,
    );
    expect(told).toHaveLength(1);
    expect(told[0]).toMatchObject({ peer: "them", error: { messages: 2 } });
    expect(wire.stats()).toMatchObject({ undelivered: 2, messagesOut: 1, queuedOutMessages: 0 });
  });

  test("a message that the far end does not take is reported although the flow stays", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    await wire.send("them", messageOf(64, 0));
    double.done(double.takeSends()[0]!.token, false);
    await wire.send("them", messageOf(64, 1));
    await until(() => node.kinds().includes("ERR_ZAP_UNDELIVERED"), "the report");
    double.down({ flow: 1, reason: 64, undelivered: 2 });
    await turns();
    expect(wire.stats().undelivered).toBe(2);
  });
});
