/** What attempts to connect that lead nowhere may cost those that lead somewhere. */
import { describe, expect, test } from "bun:test";
import { helloOf, messageOf, numberOf } from "../support/messages.ts";
import { freeAddresses, Net, type Node } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { failureOf, until, within } from "../support/wait.ts";
import { swallower } from "./swallower.ts";

async function expectExchange(a: Node, b: Node): Promise<void> {
  for (const [from, to] of [
    [a, b],
    [b, a],
  ] as const) {
    await from.send(to.id, messageOf(64, 5));
    const got = await to.recv();
    expect([got.peer, numberOf(got.message)]).toEqual([from.id, 5]);
  }
}

describe.if(process.platform === "linux")("attempts to addresses that swallow them", () => {
  test("keep no place in limits.connections: others dial in, and configured peers are dialled", async () => {
    await using net = new Net();
    await using far = await swallower(net);
    const [later] = freeAddresses(1) as [string];
    const connections = 6;
    const limits = { connections, sendMillis: 30, reconnectMinMillis: 20, reconnectMaxMillis: 50 };
    const node = await net.node("node", { limits, peers: { later, swallowed: far.address } });
    // The kernel is at all of them for minutes; a caller that goes on like that is told to stop.
    let code: string | undefined;
    for (let i = 0; code !== "ERR_ZAP_LIMIT"; i++) {
      code = (await failureOf(node.transport.connect(far.address))).code;
      if (code !== "ERR_ZAP_LIMIT") expect(code).toBe("ERR_ZAP_PEER_UNREACHABLE");
      // The configured peers are being dialled, too.
      else expect(i).toBeGreaterThanOrEqual(connections - 2);
      expect(i).toBeLessThanOrEqual(connections);
    }
    expect(node.transport.stats()).toMatchObject({ connections: 0, handshakes: 0, drops: {} });

    for (const id of ["one", "two", "three"]) {
      const guest = await net.node(id);
      await within(guest.transport.connect(node.address), `${id} to dial in`);
      await expectExchange(guest, node);
    }
    const configured = await net.node("later", { listen: later });
    await until(() => node.transport.peers().includes("later"), "the configured peer to be dialled");
    await expectExchange(node, configured);
    expect(node.transport.stats()).toMatchObject({ connections: 4, drops: {} });
  }, 10_000);

  test("that are aborted, keep no place either, and are not heard of when they come through", async () => {
    await using net = new Net();
    await using far = await swallower(net);
    const node = await net.node("node", { limits: { connections: 4 } });
    const aborts = Array.from({ length: 4 }, () => new AbortController());
    const attempts = aborts.map(({ signal }) => node.transport.connect(far.address, { signal }));
    for (const abort of aborts) abort.abort("enough");
    for (const attempt of attempts) expect((await failureOf(attempt, 500)).code).toBe("ERR_ZAP_ABORTED");
    const guest = await net.node("guest");
    await within(guest.transport.connect(node.address), "a guest to dial in");
    far.thaw();
    // The kernel tries again about a second later; what comes through then is nobody's.
    await Bun.sleep(1_200);
    await expectExchange(guest, node);
    expect(node.transport.peers()).toEqual(["guest"]);
    expect(node.transport.stats()).toMatchObject({ connections: 1, handshakes: 0, drops: {} });
    expect(node.troubles).toEqual([]);
    // Its place as an attempt is free again, too.
    expect(await within(node.transport.connect(far.address), "the host that came back")).toBe("far");
  }, 10_000);
});

describe.concurrent("a configured peer that comes up while the pause before the next dial is long", () => {
  /** Lets the peer `far` come and go until the pauses are minutes long. */
  async function comeAndGo(net: Net, node: Node, times = 14): Promise<void> {
    for (let i = 0; i < times; i++) {
      const raw = await net.rawPeer(node, "far", 1);
      raw.terminate();
      await node.untilPeers(0);
    }
  }
  const limits = { reconnectMinMillis: 20, reconnectMaxMillis: 600_000 };

  test("is reached within about a second when a send waits", async () => {
    await using net = new Net();
    const [address] = freeAddresses(1) as [string];
    const node = await net.node("node", { limits, peers: { far: address } });
    await comeAndGo(net, node);
    const far = await net.node("far", { listen: address });
    await within(node.transport.send("far", messageOf(64, 1)), "the send", 2_500);
    expect(numberOf((await far.recv()).message)).toBe(1);
  });

  test("is reached within about a second when messages that were handed over wait for it", async () => {
    await using net = new Net();
    const [address] = freeAddresses(1) as [string];
    const node = await net.node("node", { limits, peers: { far: address } });
    await comeAndGo(net, node);
    const raw = await net.rawPeer(node, "far");
    raw.pause();
    while (node.transport.stats().queuedOutMessages < 5) {
      await node.send("far", messageOf(30_000, 7));
      await Bun.sleep(0);
    }
    const queued = node.transport.stats().queuedOutMessages;
    raw.terminate();
    const far = await net.node("far", { listen: address });
    for (let n = 0; n < queued; n++) expect(numberOf((await far.recv(2_500)).message)).toBe(7);
    expect(node.transport.stats()).toMatchObject({ queuedOutMessages: 0, undelivered: 0 });
  });

  test("is not dialled more often than once a second, however many sends wait", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const node = await net.node("node", {
      limits: { ...limits, sendMillis: 1_200 },
      peers: { far: listener.address },
    });
    const attempts = () => listener.sockets.length;
    // It takes every connection and hangs up.
    const hangUp = setInterval(() => listener.sockets.forEach((socket) => socket.terminate()), 1);
    try {
      await comeAndGo(net, node);
      const before = attempts();
      const sends = Array.from({ length: 200 }, () => node.transport.send("far", messageOf(64)));
      for (const send of sends) expect((await failureOf(send)).code).toBe("ERR_ZAP_PEER_UNREACHABLE");
      expect(attempts() - before).toBeLessThanOrEqual(2);
    } finally {
      clearInterval(hangUp);
    }
  }, 10_000);
});

describe("node ids that connect has learnt", () => {
  test("are kept up to limits.connections, those learnt last, and those in use", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const configured = freeAddresses(1)[0] ?? "";
    const node = await net.node("node", { limits: { connections: 10 }, peers: { friend: configured } });
    const stays = await net.node("stays");
    await node.transport.connect(stays.address);
    const count = 40;
    for (let n = 0; n < count; n++) {
      const connecting = node.transport.connect(listener.address);
      const socket = await listener.socket(n);
      socket.write(helloOf(`ghost-${n}`, 1));
      expect(await within(connecting, "connect")).toBe(`ghost-${n}`);
      socket.terminate();
      await until(() => node.transport.peers().length === 1, "the ghost to be gone");
    }
    /** Whether the node would know where to find it. */
    const known = (id: string): boolean => {
      try {
        node.transport.trySend(id, messageOf(64));
        return true;
      } catch (error) {
        expect((error as { code?: string }).code).toBe("ERR_ZAP_UNKNOWN_PEER");
        return false;
      }
    };
    const ghosts = Array.from({ length: count }, (_, n) => `ghost-${n}`);
    await until(() => ghosts.filter(known).length <= 10, "most to be forgotten");
    expect(ghosts.filter(known)).toEqual(ghosts.slice(-10));
    expect(known("friend")).toBe(true);
    await expectExchange(node, stays);
  });
});
