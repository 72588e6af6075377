import { describe, expect, test } from "bun:test";
import { messageOf } from "../support/messages.ts";
import { Net } from "../support/nodes.ts";
import { failureOf, until } from "../support/wait.ts";

describe("connect", () => {
  test("resolves with the node id found there, the second time too, over one connection", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    expect(await a.transport.connect(b.address)).toBe("b");
    expect(await Promise.all([1, 2, 3].map(() => a.transport.connect(b.address)))).toEqual(["b", "b", "b"]);
    expect(await b.transport.connect(a.address)).toBe("a");
    await a.send("b", messageOf(64, 1));
    await b.recv();
    await until(() => b.transport.stats().handshakes === 0, "the duplicates to go away");
    expect([a, b].map((node) => node.transport.stats().connections)).toEqual([1, 1]);
    // Nothing went wrong, so nobody is told that something did.
    expect([...a.troubles, ...b.troubles]).toEqual([]);
    expect(Object.keys(b.transport.stats().drops)).toEqual(["duplicate"]);
  });

  test("several times at once ends with one connection", async () => {
    await using net = new Net();
    const [a, b] = [await net.node("a"), await net.node("b")];
    expect(await Promise.all(Array.from({ length: 8 }, () => a.transport.connect(b.address)))).toEqual(
      Array.from({ length: 8 }, () => "b"),
    );
    await until(() => b.transport.stats().handshakes === 0, "the duplicates to go away");
    expect([a, b].map((node) => node.transport.stats().connections)).toEqual([1, 1]);
    expect([...a.troubles, ...b.troubles]).toEqual([]);
  });

  test("to the node itself is refused", async () => {
    await using net = new Net();
    const a = await net.node("a");
    expect((await failureOf(a.transport.connect(a.address))).code).toBe("ERR_ZAP_HANDSHAKE");
    expect(await a.untilError("ERR_ZAP_HANDSHAKE", null)).toContain("this node itself");
    expect(a.transport.peers()).toEqual([]);
  });

  test("to a bad address says what an address is", async () => {
    await using net = new Net();
    const a = await net.node("a");
    expect((await failureOf(a.transport.connect("nowhere"))).code).toBe("ERR_ZAP_ADDRESS");
    expect((await failureOf(a.transport.connect("127.0.0.1:0"))).code).toBe("ERR_ZAP_ADDRESS");
  });

  test("to a port where nobody listens rejects at once, with the reason", async () => {
    await using net = new Net();
    const [a, b] = [await net.node("a"), await net.node("b")];
    const { address } = b;
    await b.close();
    const error = await failureOf(a.transport.connect(address), 1_000);
    expect(error.code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    expect(error.message).toContain(address);
    expect(error.message).toContain("ECONNREFUSED");
  });

  test("to a host name that does not exist rejects with the reason", async () => {
    await using net = new Net({ limits: { sendMillis: 3_000 } });
    const a = await net.node("a");
    const error = await failureOf(a.transport.connect("no-such-host.invalid:9000"));
    expect(error.message).toContain("no-such-host.invalid");
  });
});

describe("configured peers", () => {
  const quick = { limits: { reconnectMinMillis: 20, sendMillis: 400 } };

  test("on one side: messages pass both ways without a call to connect", async () => {
    await using net = new Net(quick);
    const b = await net.node("b");
    const a = await net.node("a", { peers: { b: b.address } });
    const [, got] = await Promise.all([a.send("b", messageOf(64, 1)), b.recv()]);
    expect(got.peer).toBe("a");
    await b.send("a", messageOf(64, 2));
    expect((await a.recv()).peer).toBe("b");
  });

  test("on both sides: one connection, though each dials", async () => {
    await using net = new Net(quick);
    const spare = await net.node("spare");
    const { address } = spare;
    await spare.close();
    // a knows b's address before b is there.
    const a = await net.node("a", { peers: { b: address } });
    const b = await net.node("b", { listen: address, peers: { a: a.address } });
    await Promise.all([a.untilPeers(1), b.untilPeers(1)]);
    await Promise.all([a.send("b", messageOf(64, 1)), b.send("a", messageOf(64, 2))]);
    expect([(await a.recv()).peer, (await b.recv()).peer]).toEqual(["b", "a"]);
    expect([a, b].map((node) => node.transport.stats().connections)).toEqual([1, 1]);
  });

  test("whose address answers with another id are refused, and the send says why", async () => {
    await using net = new Net(quick);
    const b = await net.node("b");
    const a = await net.node("a", { peers: { c: b.address } });
    const error = await failureOf(a.transport.send("c", messageOf(64)));
    expect(error.code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    expect(error.message).toContain("is b, not c");
    expect(await a.untilError("ERR_ZAP_HANDSHAKE", "c")).toContain("is b, not c");
    // Said once, not at every attempt.
    await Bun.sleep(200);
    expect(a.errors.filter((one) => one.code === "ERR_ZAP_HANDSHAKE")).toHaveLength(1);
  });

  test("that are not there: send rejects within limits.sendMillis, with the last attempt's reason", async () => {
    await using net = new Net(quick);
    const gone = await net.node("gone");
    const { address } = gone;
    await gone.close();
    const a = await net.node("a", { peers: { b: address } });
    const before = performance.now();
    const error = await failureOf(a.transport.send("b", messageOf(64)), 2_000);
    expect(performance.now() - before).toBeGreaterThan(350);
    expect(error.code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    expect(error.message).toContain(address);
    expect(error.message).toContain("ECONNREFUSED");
    expect(a.transport.stats().waitingSends).toBe(0);
  });

  test("a peer that dialled in and left is not reached any more, at once", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    await a.close();
    await b.untilPeers(0);
    const error = await failureOf(b.transport.send("a", messageOf(64)), 1_000);
    expect(["ERR_ZAP_UNKNOWN_PEER", "ERR_ZAP_PEER_UNREACHABLE"]).toContain(error.code ?? "");
  });
});
