import { describe, expect, test } from "bun:test";
import { messageOf } from "../../support/messages.ts";
import { failureOf, until, within } from "../../support/wait.ts";
import { numbers, PlainNode, upTo, VerbsNode } from "./node.ts";

describe("a queue pair that fails", () => {
  test("takes its link along; what it had is reported, and the rest goes over the next one, in order", async () => {
    await using b = await VerbsNode.open("b");
    await using a = await VerbsNode.open("a", { peers: { b: b.address } });
    await until(() => a.wire.peers().length === 1, "the pair");
    await a.wire.send("b", messageOf(64, 0));
    expect(await numbers(b.wire, 1)).toEqual([0]);
    a.double.held = true;
    for (const number of [1, 2, 3]) await a.wire.send("b", messageOf(64, number));
    a.double.pump();
    a.double.held = false;
    const [flow] = a.double.connected;
    a.double.down(flow!, 64, 12);
    await until(() => a.kinds().includes("disconnected"), "a to see it");
    const later = [4, 5, 6].map((number) => a.wire.send("b", messageOf(64, number)));
    await within(Promise.all(later), "what was sent meanwhile");
    const found = await numbers(b.wire, 3);
    expect(found).toEqual([4, 5, 6]);
    await until(() => b.kinds().filter((kind) => kind === "connected").length === 2, "b to see both");
    expect(a.kinds()).toEqual([
      "connected",
      "ERR_ZAP_CONNECTION_LOST",
      "ERR_ZAP_UNDELIVERED",
      "disconnected",
      "connected",
    ]);
    expect(a.errors()[0]).toBe(
      "peer b: the RDMA connection was lost: it does not answer any more (dead, retry-exceeded)",
    );
    expect(a.errors()[1]).toStartWith("3 messages were handed over for peer b and not delivered: ");
    expect(a.wire.stats().undelivered).toBe(3);
    expect(b.double.abortedFlows.length).toBe(1);
    expect([a.double.connected.length, b.double.connected.length]).toEqual([1, 1]);
  });

  test("a send in place rejects, and may be sent again", async () => {
    await using b = await VerbsNode.open("b");
    await using a = await VerbsNode.open("a", { peers: { b: b.address } });
    await until(() => a.wire.peers().length === 1, "the pair");
    const message = await a.wire.memory.pool.alloc(10_000);
    message.bytes.set(messageOf(10_000, 9));
    a.double.held = true;
    const sending = a.wire.send("b", message.bytes.subarray(0, 10_000));
    a.double.pump();
    a.double.down(a.double.connected[0]!, 66);
    expect((await failureOf(sending)).code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    a.double.held = false;
    await within(a.wire.send("b", message.bytes.subarray(0, 10_000)), "the second time");
    expect(await numbers(b.wire, 1)).toEqual([9]);
    message.release();
  });

  test("over and over, no message comes twice or out of order", async () => {
    await using b = await VerbsNode.open("b");
    await using a = await VerbsNode.open("a", { peers: { b: b.address } });
    const found: number[] = [];
    void (async () => {
      for (;;) found.push(...(await numbers(b.wire, 1)));
    })().catch(() => {});
    for (let number = 0; number < 400; number++) {
      if (number % 40 === 20) for (const flow of a.double.connected) a.double.down(flow, 64);
      if (number % 40 === 35) for (const flow of b.double.connected) b.double.down(flow, 66);
      await within(a.wire.send("b", messageOf(64, number)), `message ${number}`);
      // So that the far end is heard now and then.
      await Bun.sleep(1);
    }
    // What went to a queue pair whose far end was gone already is lost with it.
    await until(() => a.double.connected.length === 1 && a.wire.peers().length === 1, "the last pair");
    await a.wire.send("b", messageOf(64, 400));
    await until(() => found.at(-1) === 400, "the last message");
    expect(found).toEqual([...new Set(found)].sort((x, y) => x - y));
    expect(found.length + a.wire.stats().undelivered).toBeGreaterThanOrEqual(401);
    expect(found.length).toBeGreaterThan(300);
  });
});

describe("a link that goes", () => {
  test("takes its queue pair along", async () => {
    await using b = await VerbsNode.open("b", { limits: { keepaliveMillis: 20 } });
    await using a = await VerbsNode.open("a", { limits: { keepaliveMillis: 20 } });
    await b.wire.connect(a.address);
    await until(() => a.wire.peers().length === 1, "the pair");
    a.double.held = true;
    await a.wire.send("b", messageOf(64, 1));
    a.double.pump();
    await b.wire.close();
    await until(() => a.kinds().includes("disconnected"), "the end");
    await until(() => a.double.flows.size === 0, "the queue pair's end");
    await until(() => a.wire.stats().undelivered === 1, "the report");
    expect(a.wire.peers()).toEqual([]);
  });
});

describe("close", () => {
  test("delivers what was accepted, and both sides see an orderly end", async () => {
    await using b = await VerbsNode.open("b");
    const a = await VerbsNode.open("a", { peers: { b: b.address } });
    await until(() => a.wire.peers().length === 1, "the pair");
    for (let number = 0; number < 100; number++) await a.wire.send("b", messageOf(2_000, number));
    expect(await within(a.wire.close(), "close")).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    expect(await numbers(b.wire, 100)).toEqual(upTo(100));
    await until(() => b.kinds().length === 2, "the end");
    expect(b.events[1]).toEqual({ type: "disconnected", peer: "a", error: null });
    expect(a.events.at(-1)).toEqual({ type: "disconnected", peer: "b", error: null });
    expect([a.double.freed, a.double.state, a.kind.closed]).toEqual([true, "closed", true]);
  });

  test("rejects what waits, and counts what nobody took from either kind of peer", async () => {
    const a = await VerbsNode.open("a", { peers: { gone: "127.0.0.1:9" } });
    await using b = await VerbsNode.open("b");
    await using plain = await PlainNode.open("plain");
    await b.wire.connect(a.address);
    await plain.wire.connect(a.address);
    await b.wire.send("a", messageOf(64, 1));
    await plain.wire.send("a", messageOf(64, 2));
    await until(() => a.wire.stats().messagesIn === 2, "both messages");
    const sending = failureOf(a.wire.send("gone", messageOf(64)));
    const report = await within(a.wire.close(), "close");
    expect((await sending).code).toBe("ERR_ZAP_CLOSED");
    expect(report).toEqual({ undelivered: 0, unread: 2, buffers: 0 });
    expect((await failureOf(a.wire.recv())).code).toBe("ERR_ZAP_CLOSED");
    expect((await failureOf(a.wire.send("b", messageOf(64)))).code).toBe("ERR_ZAP_CLOSED");
  });

  test("a message that is still held keeps the region", async () => {
    const a = await VerbsNode.open("a");
    await using b = await VerbsNode.open("b", { peers: { a: a.address } });
    await b.wire.send("a", messageOf(64, 1));
    const envelope = await within(a.wire.recv(), "the message");
    expect((await a.wire.close()).buffers).toBe(1);
    expect([a.double.freed, envelope.message.length]).toEqual([false, 64]);
    envelope.release();
    expect(a.double.freed).toBe(true);
  });
});

describe("a port that is down", () => {
  test("brings nothing up, says so, and is used again when it is back", async () => {
    await using b = await VerbsNode.open("b");
    b.double.port(false);
    await using a = await VerbsNode.open("a", { peers: { b: b.address } });
    await until(() => a.kinds().length > 0 && b.kinds().length > 0, "errors");
    await Bun.sleep(150);
    expect([...new Set(b.errors())]).toEqual(["peer a: port 1 of the RDMA device double0 is down"]);
    expect(b.wire.stats().rdma?.portUp).toBe(false);
    expect(b.wire.peers()).toEqual([]);
    b.double.port(true);
    await until(() => a.wire.peers().length === 1, "the pair");
    await a.wire.send("b", messageOf(64, 3));
    expect(await numbers(b.wire, 1)).toEqual([3]);
  });
});
