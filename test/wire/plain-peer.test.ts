/** Peers of another make: hello of type 0, no acknowledgements, no answer to a second connection. That is what Go nodes are. */
import { describe, expect, test } from "bun:test";
import { frameOf, helloOf, joined, messageOf, numberOf, sameBytes, u32 } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener, type RawSocket } from "../support/raw.ts";
import { isSettled, until, within } from "../support/wait.ts";

const KIB = 1024;

async function expectBothWays(node: Node, raw: RawSocket, peer: string): Promise<void> {
  for (const bytes of [16, 100, 70 * KIB, 300 * KIB]) {
    raw.writeFrame(messageOf(bytes, 5));
    const got = await node.recv();
    expect([got.peer, sameBytes(got.message, messageOf(bytes, 5))]).toEqual([peer, true]);
    await node.send(peer, messageOf(bytes, 6));
    // The very next frame: nothing of our own making stands between messages.
    expect(sameBytes(await raw.frame(), messageOf(bytes, 6))).toBe(true);
  }
}

describe("a peer of another make", () => {
  test("that dials in is answered in its own way, byte for byte, and messages pass both ways", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.raw(node);
    expect(await raw.greet("go-7")).toEqual(helloOf("node").subarray(4));
    expect(node.transport.peers()).toEqual(["go-7"]);
    await expectBothWays(node, raw, "go-7");
    expect(raw.received).toHaveLength(0);
    expect(node.troubles).toEqual([]);
  });

  test("that is dialled hears a hello that differs from its own in the message type alone", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const node = await net.node("node");
    const connecting = node.transport.connect(listener.address);
    const raw = await listener.socket();
    const hello = await raw.frame();
    const expected = helloOf("node").subarray(4);
    expected[7] = 1;
    expect(hello).toEqual(expected);
    raw.write(helloOf("go-7"));
    expect(await within(connecting, "connect")).toBe("go-7");
    await expectBothWays(node, raw, "go-7");
    expect(node.troubles).toEqual([]);
  });

  test("gets no acknowledgement, however much it sends and however long it waits", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "go-7");
    for (let n = 0; n < 30; n++) raw.writeFrame(messageOf(100 * KIB, n));
    for (let n = 0; n < 30; n++) expect(numberOf((await node.recv()).message)).toBe(n);
    await Bun.sleep(250);
    expect(raw.received).toHaveLength(0);
  });

  test("that hangs up in good order owes no acknowledgements: nothing is reported as lost", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "go-7");
    for (let n = 0; n < 10; n++) await node.send("go-7", messageOf(64, n));
    for (let n = 0; n < 10; n++) expect(numberOf(await raw.frame())).toBe(n);
    raw.shutdown();
    await node.untilPeers(0);
    await raw.untilClosed();
    expect(node.troubles).toEqual([]);
    expect(node.transport.stats().undelivered).toBe(0);
  });

  test("that connects a second time is dropped before the reply; the first connection stays", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const first = await net.rawPeer(node, "go-7");
    for (let i = 0; i < 3; i++) {
      const second = await net.raw(node);
      second.write(joined(helloOf("go-7"), frameOf(messageOf(64, 66))));
      await second.untilClosed();
      expect(second.received).toHaveLength(0);
    }
    await expectBothWays(node, first, "go-7");
    expect(node.transport.stats()).toMatchObject({ connections: 1, messagesIn: 4, drops: { duplicate: 3 } });
    expect(node.troubles).toEqual([]);
  });

  test("may connect again as soon as its first connection is gone", async () => {
    await using net = new Net();
    const node = await net.node("node");
    for (let i = 0; i < 20; i++) {
      const raw = await net.rawPeer(node, "go-7");
      raw.writeFrame(messageOf(64, i));
      expect(numberOf((await node.recv()).message)).toBe(i);
      if (i % 2 === 0) raw.terminate();
      else raw.shutdown();
      await node.untilPeers(0);
    }
  });

  test("sends calls and keepalives that do not get in the way of messages", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "go-7");
    raw.write(u32(0), frameOf(joined(u32(1), u32(1), messageOf(64, 1))), u32(0), frameOf(messageOf(64, 2)));
    expect(numberOf((await node.recv()).message)).toBe(2);
    expect(node.transport.stats().drops).toEqual({ magic: 1 });
  });
});

describe("a peer of another make that dials while it is dialled", () => {
  /** Both connections are up; nothing has been closed yet. */
  async function crossed(net: Net, handshakeMillis: number) {
    const listener = new RawListener();
    const node = await net.node("node", { limits: { handshakeMillis } });
    const connecting = node.transport.connect(listener.address);
    const dialled = await listener.socket();
    await dialled.frame();
    // Its own dial arrives before it has answered ours.
    const inbound = await net.rawPeer(node, "go-7");
    dialled.write(helloOf("go-7"));
    expect(await within(connecting, "connect")).toBe("go-7");
    return { listener, node, dialled, inbound };
  }

  for (const keeps of ["inbound", "dialled"] as const) {
    test(`and keeps the ${keeps} one gets every message there`, async () => {
      await using net = new Net();
      const { listener, node, ...sockets } = await crossed(net, 2_000);
      using _ = listener;
      const [kept, closed] =
        keeps === "inbound" ? [sockets.inbound, sockets.dialled] : [sockets.dialled, sockets.inbound];
      const sends = [1, 2, 3].map((n) => node.transport.send("go-7", messageOf(64, n)));
      expect(await isSettled(Promise.race(sends))).toBe(false);
      closed.terminate();
      for (let n = 1; n <= 3; n++) expect(numberOf(await kept.message())).toBe(n);
      await within(Promise.all(sends), "the sends");
      kept.writeFrame(messageOf(64, 4));
      expect(numberOf((await node.recv()).message)).toBe(4);
      expect(node.transport.stats()).toMatchObject({ connections: 1, undelivered: 0 });
      expect(node.transport.peers()).toEqual(["go-7"]);
      const story = node.events.map((event) => event.type).filter((type) => type !== "error");
      // It is one peer that came and stayed, whatever became of the spare connection.
      expect(story).toEqual(["connected"]);
    });
  }

  test("and keeps both is heard on both, and answered on one", async () => {
    await using net = new Net();
    const { listener, node, dialled, inbound } = await crossed(net, 200);
    using _ = listener;
    dialled.writeFrame(messageOf(64, 1));
    expect(numberOf((await node.recv()).message)).toBe(1);
    inbound.writeFrame(messageOf(64, 2));
    expect(numberOf((await node.recv()).message)).toBe(2);
    await node.send("go-7", messageOf(64, 3));
    await until(() => dialled.received.length + inbound.received.length >= 68, "the message on one of them");
    expect(dialled.received.length + inbound.received.length).toBe(68);
    expect(node.transport.stats().connections).toBe(1);
  });
});
