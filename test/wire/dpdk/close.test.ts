import { describe, expect, test } from "bun:test";
import { isMessage, messageOf } from "../../support/messages.ts";
import { failureOf, within } from "../../support/wait.ts";
import { turns, WireOnDouble } from "./engine-double.ts";

describe("closing", () => {
  test("closes every flow, waits for their ends, and gives everything back", async () => {
    const node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected(1, "a");
    await node.connected(2, "b");
    const report = await within(wire.close(), "close");
    expect(report).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    expect(double.closedFlows).toEqual([1, 2]);
    expect([double.state, double.freed, node.kind.closed]).toEqual(["closed", true, true]);
    expect(node.kinds()).toEqual(["connected", "connected", "disconnected", "disconnected"]);
    expect(await wire.close()).toEqual(report);
  });

  test("with everything outstanding it says so, and the memory goes back with the last of it", async () => {
    const node = await WireOnDouble.open({ double: { hangsUp: false }, limits: { closeMillis: 50 } });
    const { double, wire } = node;
    await node.connected();
    double.deliver(1, messageOf(5_000, 1));
    double.deliver(1, messageOf(5_000, 2));
    double.deliver(1, messageOf(5_000, 3));
    const kept = await wire.recv();
    const buffer = await wire.memory.pool.alloc(10_000);
    buffer.bytes.set(messageOf(10_000, 4));
    await wire.send("them", messageOf(100, 5));
    const inPlace = wire.send("them", buffer.bytes);
    const connecting = wire.connect("10.0.0.9:9000");
    const failed = Promise.all([failureOf(inPlace), failureOf(connecting)]);
    const report = await within(wire.close(), "close");
    expect(report).toEqual({ undelivered: 1, unread: 2, buffers: 2 });
    expect((await failed).map(({ code }) => code)).toEqual(["ERR_ZAP_CLOSED", "ERR_ZAP_CLOSED"]);
    expect([double.freed, node.kind.closed]).toEqual([false, false]);
    expect(isMessage(kept.message, 1)).toBe(true);
    expect(isMessage(buffer.bytes, 4)).toBe(true);
    buffer.release();
    await turns();
    expect([double.freed, node.kind.closed]).toEqual([false, false]);
    const view = kept.message;
    kept.release();
    await turns();
    expect([double.freed, node.kind.closed, view.length]).toEqual([true, true, 0]);
    expect(wire.stats()).toMatchObject({ undelivered: 1, queuedOutMessages: 0, connections: 0 });
  });

  test("what is accepted is delivered first, and what comes meanwhile counts as unread", async () => {
    const node = await WireOnDouble.open({ double: { hangsUp: false } });
    const { double, wire } = node;
    await node.connected();
    await wire.send("them", messageOf(100, 1));
    const buffer = await wire.memory.pool.alloc(9_000);
    buffer.bytes.set(messageOf(9_000, 2));
    const inPlace = wire.send("them", buffer.bytes);
    const closing = wire.close();
    expect((await failureOf(wire.send("them", messageOf(64)))).code).toBe("ERR_ZAP_CLOSED");
    const late = double.deliver(1, messageOf(64, 9));
    await turns();
    expect(double.returned()).toEqual([late]);
    for (const { token } of double.takeSends()) double.done(token);
    double.down({ flow: 1, reason: 1 });
    await within(inPlace, "the message in place");
    buffer.release();
    expect(await within(closing, "close")).toEqual({ undelivered: 0, unread: 1, buffers: 0 });
    expect(double.freed).toBe(true);
  });

  test("those that wait for room are rejected", async () => {
    const node = await WireOnDouble.open({ limits: { sendQueueBytes: 500 } });
    const { wire } = node;
    await node.connected();
    await wire.send("them", messageOf(400, 0));
    const failed = failureOf(wire.send("them", messageOf(400, 1)));
    const report = await within(wire.close(), "close");
    expect((await failed).code).toBe("ERR_ZAP_CLOSED");
    expect(report.undelivered).toBe(1);
  });
});
