/** `connect` to an address that says "we are connected already" although no such connection is known here. */
import { describe, expect, test } from "bun:test";
import { helloOf, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { failureOf, isSettled, until, within } from "../support/wait.ts";

const DUPLICATE = 2;

/** A `connect` that has been answered with "duplicate" and waits for the other connection. */
async function answered(net: Net, limits: object, signal?: AbortSignal) {
  const listener = new RawListener();
  const node = await net.node("node", { limits });
  const connecting = node.transport.connect(listener.address, signal === undefined ? {} : { signal });
  connecting.catch(() => {});
  const socket = await listener.socket();
  await socket.frame();
  socket.write(helloOf("ghost", DUPLICATE));
  await socket.untilClosed();
  expect(await isSettled(connecting)).toBe(false);
  return { listener, node, connecting };
}

/** Nothing is left of the attempt: a peer of that id may come and go as any other. */
async function expectClean(net: Net, node: Node): Promise<void> {
  expect(node.transport.stats()).toMatchObject({ connections: 0, handshakes: 0 });
  const ghost = await net.node("ghost");
  expect(await within(ghost.transport.connect(node.address), "the ghost's connect")).toBe("node");
  await ghost.send("node", messageOf(64, 1));
  expect(numberOf((await node.recv()).message)).toBe(1);
  await ghost.close();
  await node.untilPeers(0);
  expect(node.troubles).toEqual([]);
}

describe("connect after a duplicate answer", () => {
  test("heeds its signal", async () => {
    await using net = new Net();
    const abort = new AbortController();
    const { listener, node, connecting } = await answered(net, { handshakeMillis: 60_000 }, abort.signal);
    using _ = listener;
    abort.abort("enough");
    const error = await failureOf(connecting, 500);
    expect([error.name, error.code, error.cause]).toEqual(["AbortError", "ERR_ZAP_ABORTED", "enough"]);
    await expectClean(net, node);
  });

  test("heeds limits.sendMillis", async () => {
    await using net = new Net();
    const limits = { handshakeMillis: 60_000, sendMillis: 150 };
    const { listener, node, connecting } = await answered(net, limits);
    using _ = listener;
    const error = await failureOf(connecting, 1_000);
    expect([error.code, error.message]).toEqual([
      "ERR_ZAP_PEER_UNREACHABLE",
      expect.stringContaining("limits.sendMillis"),
    ]);
    await expectClean(net, node);
  });

  test("heeds limits.handshakeMillis, and says what it was told", async () => {
    await using net = new Net();
    const { listener, node, connecting } = await answered(net, { handshakeMillis: 150, sendMillis: 60_000 });
    using _ = listener;
    const error = await failureOf(connecting, 1_000);
    expect([error.code, error.message]).toEqual(["ERR_ZAP_HANDSHAKE", expect.stringContaining("ghost")]);
    await expectClean(net, node);
  });

  test("resolves when that connection comes up, however late", async () => {
    await using net = new Net();
    const { listener, node, connecting } = await answered(net, { handshakeMillis: 60_000 });
    using _ = listener;
    const ghost = await net.rawPeer(node, "ghost", 1);
    expect(await within(connecting, "connect", 500)).toBe("ghost");
    ghost.terminate();
  });

  test("rejects when the transport is closed, which does not wait for it", async () => {
    await using net = new Net({ limits: { closeMillis: 60_000 } });
    const { listener, node, connecting } = await answered(net, { handshakeMillis: 60_000 });
    using _ = listener;
    await within(node.transport.close(), "close", 1_000);
    expect((await failureOf(connecting, 500)).code).toBe("ERR_ZAP_CLOSED");
  });

  test("of many callers fails those that give up, and no other", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const node = await net.node("node", { limits: { handshakeMillis: 60_000 } });
    const aborts = Array.from({ length: 6 }, () => new AbortController());
    const calls = aborts.map(({ signal }) => node.transport.connect(listener.address, { signal }));
    for (const call of calls) call.catch(() => {});
    for (let i = 0; i < 6; i++) {
      const socket = await listener.socket(i);
      await socket.frame();
      socket.write(helloOf("ghost", DUPLICATE));
      await socket.untilClosed();
    }
    for (const i of [0, 3, 5]) aborts[i]?.abort(i);
    await until(() => node.transport.stats().handshakes === 0, "the answers");
    const ghost = await net.rawPeer(node, "ghost", 1);
    const outcomes = await within(Promise.allSettled(calls), "all calls", 1_000);
    expect(outcomes.map((one) => (one.status === "fulfilled" ? one.value : one.reason.code))).toEqual([
      "ERR_ZAP_ABORTED",
      "ghost",
      "ghost",
      "ERR_ZAP_ABORTED",
      "ghost",
      "ERR_ZAP_ABORTED",
    ]);
    ghost.terminate();
  });

  test("forgets the ids of those that gave up, when they are too many", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const node = await net.node("node", { limits: { connections: 4 } });
    const ids = Array.from({ length: 12 }, (_, n) => `ghost-${n}`);
    for (const [n, id] of ids.entries()) {
      const abort = new AbortController();
      const connecting = node.transport.connect(listener.address, { signal: abort.signal });
      const socket = await listener.socket(n);
      await socket.frame();
      socket.write(helloOf(id, DUPLICATE));
      await socket.untilClosed();
      abort.abort();
      expect((await failureOf(connecting)).code).toBe("ERR_ZAP_ABORTED");
    }
    const known = (id: string): boolean => {
      try {
        node.transport.trySend(id, messageOf(64));
        return true;
      } catch {
        return false;
      }
    };
    await until(() => ids.filter(known).length <= 4, "most to be forgotten");
    expect(ids.filter(known)).toEqual(ids.slice(-4));
  });
});
