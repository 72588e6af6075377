import { describe, expect, test } from "bun:test";
import { messageOf, numberOf } from "../../support/messages.ts";
import { failureOf, isSettled, until, within } from "../../support/wait.ts";
import { turns, WireOnDouble } from "./engine-double.ts";

describe("reaching peers", () => {
  test("connect resolves with the node that is found there", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    const connecting = wire.connect("10.0.0.2:9000");
    await until(() => double.dials.length === 1, "a dial");
    const [dial] = double.dials;
    expect(dial).toMatchObject({ id: "", port: 9000 });
    double.up({ flow: 3, id: "them", number: dial!.number });
    expect(await within(connecting, "connect")).toBe("them");
    expect(wire.peers()).toEqual(["them"]);
    expect(node.events).toEqual([
      { type: "connected", peer: "them", address: "10.0.0.2:9000", dialled: true },
    ]);
  });

  test("also where a connection with that node exists already", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected(4, "them");
    const connecting = wire.connect("[fd00::2]:9000");
    await until(() => double.dials.length === 1, "a dial");
    double.dialled({ number: double.dials[0]!.number, reason: 3, flow: 4 });
    expect(await within(connecting, "connect")).toBe("them");
  });

  test("and where that connection is not known here yet, it asks again", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    const connecting = wire.connect("10.0.0.2:9000");
    await until(() => double.dials.length === 1, "a dial");
    double.dialled({ number: double.dials[0]!.number, reason: 3 });
    double.up({ flow: 4, id: "them" });
    await until(() => double.dials.length === 2, "another dial");
    double.dialled({ number: double.dials[1]!.number, reason: 3, flow: 4 });
    expect(await within(connecting, "connect")).toBe("them");
  });

  test("a host name is looked up", async () => {
    await using node = await WireOnDouble.open();
    const connecting = node.wire.connect("localhost:9000");
    await until(() => node.double.dials.length === 1, "a dial");
    node.double.up({ flow: 1, id: "them", number: node.double.dials[0]!.number });
    expect(await within(connecting, "connect")).toBe("them");
  });

  for (const [reason, code] of [
    [65, "ERR_ZAP_PEER_UNREACHABLE"],
    [64, "ERR_ZAP_PEER_UNREACHABLE"],
    [7, "ERR_ZAP_HANDSHAKE"],
    [8, "ERR_ZAP_HANDSHAKE"],
    [6, "ERR_ZAP_HANDSHAKE"],
    [5, "ERR_ZAP_HANDSHAKE"],
    [9, "ERR_ZAP_HANDSHAKE"],
  ] as const) {
    test(`a dial that ends for reason ${reason} rejects with ${code}, which names the address`, async () => {
      await using node = await WireOnDouble.open();
      const connecting = node.wire.connect("10.0.0.2:9000");
      await until(() => node.double.dials.length === 1, "a dial");
      node.double.dialled({ number: node.double.dials[0]!.number, reason });
      const error = await failureOf(connecting);
      expect(error.code).toBe(code);
      expect(error.message).toContain("10.0.0.2:9000");
    });
  }

  test("an abort and the time limit call the attempt off", async () => {
    await using node = await WireOnDouble.open({ limits: { sendMillis: 40 } });
    const { double, wire } = node;
    const abort = new AbortController();
    const aborted = wire.connect("10.0.0.2:9000", abort.signal);
    const late = wire.connect("10.0.0.3:9000");
    await until(() => double.dials.length === 2, "two dials");
    abort.abort();
    expect((await failureOf(aborted)).code).toBe("ERR_ZAP_ABORTED");
    expect((await failureOf(late)).message).toContain("limits.sendMillis");
    expect(double.cancelled).toEqual(double.dials.map(({ number }) => number));
    for (const address of ["unix:/tmp/x", "10.0.0.2", "[fe80::1%eth0]:1"])
      expect(["ERR_ZAP_ADDRESS", "ERR_ZAP_PEER_UNREACHABLE"]).toContain(
        (await failureOf(wire.connect(address))).code!,
      );
  });

  test("a configured peer is dialled at once, by its id, again after a pause, and its fault told once", async () => {
    await using node = await WireOnDouble.open({
      options: { peers: { them: "10.0.0.2:9000" } },
      limits: { reconnectMinMillis: 10, reconnectMaxMillis: 20 },
    });
    const { double, wire } = node;
    for (let round = 0; round < 3; round++) {
      await until(() => double.dials.length === round + 1, "a dial");
      expect(double.dials[round]!.id).toBe("them");
      double.dialled({ number: double.dials[round]!.number, reason: 65 });
    }
    await until(() => double.dials.length === 4, "a dial");
    expect(node.kinds()).toEqual(["ERR_ZAP_PEER_UNREACHABLE"]);
    double.up({ flow: 9, id: "them", number: double.dials[3]!.number });
    await turns();
    expect(wire.peers()).toEqual(["them"]);
    double.down({ flow: 9, reason: 64 });
    await until(() => double.dials.length === 5, "a dial after the loss");
  });

  test("a send to a peer that is down waits for it, or rejects in time", async () => {
    await using node = await WireOnDouble.open({
      options: { peers: { them: "10.0.0.2:9000" } },
      limits: { sendMillis: 150 },
    });
    const { double, wire } = node;
    const sending = wire.send("them", messageOf(64, 1));
    await until(() => double.dials.length === 1, "a dial");
    double.up({ flow: 2, id: "them", number: double.dials[0]!.number });
    await within(sending, "the message");
    expect(double.takeSends().map(({ bytes, flow }) => [numberOf(bytes), flow])).toEqual([[1, 2]]);
    double.down({ flow: 2, reason: 4 });
    await turns();
    const late = await failureOf(wire.send("them", messageOf(64, 2)));
    expect(late.code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    expect(late.message).toContain("new process");
  });

  test("a peer that only dials is forgotten when it is gone", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    double.down({ flow: 1, reason: 1 });
    await turns();
    expect(node.events.at(-1)).toEqual({ type: "disconnected", peer: "them", error: null });
    expect((await failureOf(wire.send("them", messageOf(64)))).code).toBe("ERR_ZAP_UNKNOWN_PEER");
  });

  test("a peer that came again takes its place, and what waits goes to the new one", async () => {
    await using node = await WireOnDouble.open({ limits: { sendQueueBytes: 1_000 } });
    const { double, wire } = node;
    await node.connected(1, "them");
    await wire.send("them", messageOf(900, 0));
    const waiting = wire.send("them", messageOf(900, 1));
    expect(await isSettled(waiting)).toBe(false);
    double.up({ flow: 2, id: "them" });
    await within(waiting, "the message that waited");
    const sent = double.takeSends();
    expect(sent.map(({ flow }) => flow)).toEqual([1, 2]);
    double.done(sent[0]!.token, false);
    double.down({ flow: 1, reason: 4, undelivered: 1 });
    await turns();
    expect(wire.peers()).toEqual(["them"]);
    expect(node.kinds()).toEqual(["connected", "disconnected", "connected", "ERR_ZAP_UNDELIVERED"]);
  });
});
