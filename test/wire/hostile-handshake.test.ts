import { describe, expect, test } from "bun:test";
import { frameOf, helloOf, joined, messageOf, numberOf, u32 } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { failureOf, until, within } from "../support/wait.ts";

const QUICK = { limits: { handshakeMillis: 150 } };

/** A friend can still come in, and its messages arrive. */
async function expectStillOpen(net: Net, node: Node): Promise<void> {
  const friend = await net.node(`friend-${crypto.randomUUID().slice(0, 8)}`);
  expect(await within(friend.transport.connect(node.address), "a friend to connect", 2_000)).toBe(node.id);
  await friend.send(node.id, messageOf(64, 77));
  expect(numberOf((await node.recv()).message)).toBe(77);
}

describe("a stranger who says", () => {
  const cases: [string, Uint8Array, string][] = [
    ["HTTP", new TextEncoder().encode("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "no ZAP hello"],
    ["a TLS hello", Uint8Array.fromHex("16030100f8010000f40303"), "no ZAP hello"],
    ["only zeros", new Uint8Array(200), "no ZAP hello"],
    ["a length of 2^32-1", u32(0xffff_ffff), "no ZAP hello"],
    ["a hello too long", u32(1_025), "no ZAP hello"],
    ["a message that is no hello", frameOf(messageOf(64)), "80 are needed"],
    ["a hello of another format", frameOf(new Uint8Array(80)), "magic"],
    ["a hello without a name", helloOf(""), "node id of 0 bytes"],
    ["a hello with a name of control characters", helloOf("a\nb"), "control characters"],
    ["a keepalive first", u32(0), "no ZAP hello"],
  ];
  for (const [what, bytes, words] of cases) {
    test(`${what} is hung up on, reported, and disturbs nobody`, async () => {
      await using net = new Net();
      const node = await net.node("node");
      const raw = await net.raw(node);
      raw.write(bytes);
      await raw.untilClosed();
      const text = await node.untilError("ERR_ZAP_HANDSHAKE", null);
      expect(text).toContain(words);
      expect(text).toContain("127.0.0.1:");
      expect(raw.received).toHaveLength(0);
      expect(node.transport.stats()).toMatchObject({
        ...{ connections: 0, handshakes: 0, messagesIn: 0 },
        drops: { handshake: 1 },
      });
      await expectStillOpen(net, node);
    });
  }

  test("our own id is hung up on", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.raw(node);
    raw.write(helloOf("node"));
    await raw.untilClosed();
    expect(await node.untilError("ERR_ZAP_HANDSHAKE", null)).toContain("this node itself");
  });

  test("a hello and messages in one breath is heard", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.raw(node);
    raw.write(joined(helloOf("quick"), frameOf(messageOf(64, 1)), frameOf(messageOf(300_000, 2))));
    expect(numberOf((await node.recv()).message)).toBe(1);
    expect(numberOf((await node.recv()).message)).toBe(2);
  });

  test("hello one byte at a time is heard, within the limit", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.raw(node);
    for (const byte of joined(helloOf("slow"), frameOf(messageOf(64, 5)))) {
      raw.write(Uint8Array.of(byte));
      await Bun.sleep(0);
    }
    const { peer, message } = await node.recv();
    expect([peer, numberOf(message)]).toEqual(["slow", 5]);
    expect((await raw.frame()).subarray(16, 20)).toEqual(new TextEncoder().encode("node"));
  });
});

describe("a stranger who", () => {
  test("says nothing is hung up on after limits.handshakeMillis", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node");
    const raw = await net.raw(node);
    await raw.untilClosed(1_000);
    expect(await node.untilError("ERR_ZAP_HANDSHAKE", null)).toContain("limits.handshakeMillis");
    expect(node.transport.stats()).toMatchObject({ connections: 0, handshakes: 0 });
  });

  test("says a byte now and then is hung up on after limits.handshakeMillis too", async () => {
    await using net = new Net(QUICK);
    const node = await net.node("node");
    const raw = await net.raw(node);
    const hello = helloOf("dawdler");
    const before = performance.now();
    for (let i = 0; !raw.closed && !raw.ended && i < 80; i++) {
      raw.write(hello.subarray(i, i + 1));
      await Bun.sleep(20);
    }
    expect(performance.now() - before).toBeLessThan(1_500);
    expect(raw.received).toHaveLength(0);
    expect(node.transport.stats()).toMatchObject({ connections: 0, handshakes: 0 });
  });

  test("comes and goes without a word is counted, and no trouble", async () => {
    await using net = new Net();
    const node = await net.node("node");
    for (let i = 0; i < 10; i++) {
      const raw = await net.raw(node);
      if (i % 2 === 0) raw.terminate();
      else raw.shutdown();
    }
    await until(() => node.transport.stats().drops["silent"] === 10, "ten to be counted");
    expect(node.troubles).toEqual([]);
    expect(node.transport.stats()).toMatchObject({ connections: 0, handshakes: 0 });
  });

  test("hangs up in the middle of its hello is reported", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.raw(node);
    raw.write(helloOf("coward").subarray(0, 40));
    raw.shutdown();
    expect(await node.untilError("ERR_ZAP_HANDSHAKE", null)).toContain("hung up before it said hello");
  });
});

describe("an address that answers", () => {
  const cases: [string, Uint8Array, string][] = [
    ["with garbage", new TextEncoder().encode("SSH-2.0-OpenSSH_9.6\r\n"), "no ZAP hello"],
    ["with a length of 2^32-1", u32(0xffff_ffff), "no ZAP hello"],
    ["with our own id", helloOf("node"), "this node itself"],
  ];
  for (const [what, bytes, words] of cases) {
    test(`${what} fails connect with the reason`, async () => {
      await using net = new Net();
      using listener = new RawListener();
      const node = await net.node("node");
      const connecting = node.transport.connect(listener.address);
      const socket = await listener.socket();
      socket.write(bytes);
      const error = await failureOf(connecting, 1_000);
      expect(error.code).toBe("ERR_ZAP_HANDSHAKE");
      expect(error.message).toContain(words);
      expect(error.message).toContain(listener.address);
      await socket.untilClosed();
    });
  }

  test("by hanging up fails connect at once", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const node = await net.node("node");
    for (const how of ["shutdown", "terminate"] as const) {
      const count = listener.sockets.length;
      const connecting = node.transport.connect(listener.address);
      const socket = await listener.socket(count);
      await until(() => socket.received.length === 84, "the hello");
      socket[how]();
      const error = await failureOf(connecting, 1_000);
      expect(error.code).toBe("ERR_ZAP_HANDSHAKE");
      expect(error.message).toContain(listener.address);
    }
  });

  test("with nothing fails connect after limits.handshakeMillis", async () => {
    await using net = new Net(QUICK);
    using listener = new RawListener();
    const node = await net.node("node");
    const error = await failureOf(node.transport.connect(listener.address), 1_000);
    expect(error.code).toMatch(/ERR_ZAP_(HANDSHAKE|TIMEOUT|PEER_UNREACHABLE)/);
    expect(error.message).toContain(listener.address);
    expect(node.transport.stats()).toMatchObject({ connections: 0, handshakes: 0 });
  });

  test("that we are connected already, though we are not, fails connect in time", async () => {
    await using net = new Net(QUICK);
    using listener = new RawListener();
    const node = await net.node("node");
    const connecting = node.transport.connect(listener.address);
    (await listener.socket()).write(helloOf("liar", 2));
    const error = await failureOf(connecting, 1_000);
    expect(error.code).toBe("ERR_ZAP_HANDSHAKE");
    expect(error.message).toContain("liar");
    expect(node.transport.peers()).toEqual([]);
  });
});

describe("an allow-list", () => {
  test("lets in those that are on it and configured peers, and nobody else", async () => {
    await using net = new Net();
    const other = await net.node("configured");
    const node = await net.node("node", { allow: ["friend"], peers: { configured: other.address } });
    await node.untilPeers(1);
    const stranger = await net.raw(node);
    stranger.write(joined(helloOf("stranger"), frameOf(messageOf(64, 1))));
    await stranger.untilClosed();
    expect(stranger.received).toHaveLength(0);
    expect(await node.untilError("ERR_ZAP_HANDSHAKE", null)).toContain(
      "stranger, which is not on the allow-list",
    );
    const friend = await net.rawPeer(node, "friend");
    friend.writeFrame(messageOf(64, 2));
    expect(numberOf((await node.recv()).message)).toBe(2);
    expect(node.transport.peers().sort()).toEqual(["configured", "friend"]);
    expect(node.transport.stats().messagesIn).toBe(1);
  });

  test("holds for those that are dialled too", async () => {
    await using net = new Net();
    const [node, stranger] = [await net.node("node", { allow: [] }), await net.node("stranger")];
    const error = await failureOf(node.transport.connect(stranger.address));
    expect([error.code, error.message]).toEqual(["ERR_ZAP_HANDSHAKE", expect.stringContaining("allow-list")]);
    expect(node.transport.peers()).toEqual([]);
    await until(() => stranger.transport.peers().length === 0, "the stranger to notice");
  });

  test("tells the one who is turned away that it may be that", async () => {
    await using net = new Net();
    const [node, stranger] = [await net.node("node", { allow: ["x"] }), await net.node("stranger")];
    const error = await failureOf(stranger.transport.connect(node.address));
    expect([error.code, error.message]).toEqual([
      "ERR_ZAP_HANDSHAKE",
      expect.stringContaining("does not allow"),
    ]);
  });
});

describe("a connection that was turned away as a duplicate", () => {
  for (const size of [64, 100_000]) {
    test(`delivers nothing, whatever it goes on to say (${size} bytes)`, async () => {
      await using net = new Net();
      const node = await net.node("node");
      const first = await net.raw(node);
      await first.greet("twin", 1);
      const second = await net.raw(node);
      // Hello and message in one piece, and the message once more behind the answer.
      second.write(helloOf("twin", 1), frameOf(messageOf(size, 1)));
      expect((await second.frame())[7]).toBe(2);
      second.writeFrame(messageOf(size, 2));
      first.writeFrame(messageOf(size, 3));
      const { peer, message } = await node.recv();
      expect([peer, numberOf(message)]).toEqual(["twin", 3]);
      await until(() => (node.transport.stats().drops["stranger"] ?? 0) > 0, "the others to be dropped");
      expect(node.transport.stats()).toMatchObject({ queuedInMessages: 0, messagesIn: 1, connections: 1 });
    });
  }
});
