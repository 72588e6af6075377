import { beforeAll, describe, expect, test } from "bun:test";
import { Authority } from "../support/certificates.ts";
import { frameOf, helloOf, isMessage, joined, messageOf, numberOf, sameBytes } from "../support/messages.ts";
import { freeAddresses, Net, type Node } from "../support/nodes.ts";
import { until, within } from "../support/wait.ts";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const KIB = 1024;
const MIB = 1024 * KIB;

let authority: Authority;
beforeAll(async () => {
  authority = await Authority.make();
});

async function securePair(net: Net): Promise<[Node, Node]> {
  const [a, b] = await Promise.all(
    ["a", "b"].map(async (id) => net.node(id, { tls: await authority.issue({ cn: id }) })),
  );
  expect(await within(a!.transport.connect(b!.address), "a to connect to b")).toBe("b");
  await b!.untilPeers(1);
  return [a!, b!];
}

describe("over TLS with certificates on both sides", () => {
  test("messages of every size pass both ways", async () => {
    await using net = new Net();
    const [a, b] = await securePair(net);
    for (const bytes of [16, 1_000, 16_385, 64 * KIB + 1, 128 * KIB + 1, MIB, 10 * MIB]) {
      for (const [from, to] of [
        [a, b],
        [b, a],
      ] as const) {
        const [, got] = await Promise.all([from.send(to.id, messageOf(bytes, 3)), to.recv()]);
        expect([got.peer, sameBytes(got.message, messageOf(bytes, 3))]).toEqual([from.id, true]);
      }
    }
    expect([...a.troubles, ...b.troubles]).toEqual([]);
  });

  test("many messages both ways at once keep their order", async () => {
    await using net = new Net();
    const [a, b] = await securePair(net);
    const sizes = [64, 300, 20_000, 150_000, 20];
    const send = async (from: Node, to: Node): Promise<void> => {
      for (let n = 0; n < 2_000; n++) await from.transport.send(to.id, messageOf(sizes[n % 5] ?? 64, n));
    };
    await Promise.all([send(a, b), send(b, a), a.takeNumbered(2_000), b.takeNumbered(2_000)]);
    expect([...a.troubles, ...b.troubles]).toEqual([]);
  }, 10_000);

  test("nothing of a message is readable on the way", async () => {
    await using net = new Net();
    const tls = await authority.issue({ cn: "node" });
    const node = await net.node("node", { tls });
    const other = await authority.issue({ cn: "peer" });
    // What a relay in the middle sees.
    const seen: Uint8Array[] = [];
    const relay = Bun.listen<{ out?: Bun.Socket }>({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        async open(socket) {
          const out = Bun.connect({
            hostname: "127.0.0.1",
            port: node.port,
            socket: { data: (_, chunk) => void (seen.push(chunk), socket.write(chunk)) },
          });
          socket.data = { out: await out };
        },
        async data(socket, chunk) {
          seen.push(chunk);
          await until(() => socket.data?.out !== undefined, "the far side");
          socket.data?.out?.write(chunk);
        },
      },
    });
    const peer = await net.node("peer", { tls: other });
    await peer.transport.connect(`127.0.0.1:${relay.port}`);
    const message = messageOf(2_000, 5);
    await Promise.all([peer.send("node", message), node.recv()]);
    const all = Buffer.concat(seen);
    expect(all.length).toBeGreaterThan(3_000);
    expect(all.indexOf(message.subarray(100, 120))).toBe(-1);
    expect(all.indexOf("ZAP\0")).toBe(-1);
    relay.stop(true);
  });

  test("close flushes what was accepted", async () => {
    await using net = new Net({ limits: { closeMillis: 5_000 } });
    const [a, b] = await securePair(net);
    const sends = Array.from({ length: 60 }, (_, n) =>
      a.transport.send("b", messageOf(n % 3 === 0 ? 200 * KIB : 900, n)),
    );
    const accepted = Promise.allSettled(sends);
    const receiving = b.takeNumbered(0);
    await Bun.sleep(5);
    const closing = a.close();
    const outcomes = await accepted;
    const handedOver = outcomes.filter((outcome) => outcome.status === "fulfilled").length;
    await b.takeNumbered(handedOver);
    await receiving;
    expect(await closing).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    await b.untilPeers(0);
    expect(b.transport.stats().messagesIn).toBe(handedOver);
  });

  test("connections come back after a loss, and nothing is sent twice", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 20, reconnectMaxMillis: 100 } });
    const [address] = freeAddresses(1);
    const [tlsA, tlsB] = [await authority.issue({ cn: "a" }), await authority.issue({ cn: "b" })];
    const a = await net.node("a", { tls: tlsA, peers: { b: address ?? "" } });
    for (let round = 0; round < 3; round++) {
      const b = await net.node("b", { tls: tlsB, listen: address ?? "" });
      const [, got] = await Promise.all([a.send("b", messageOf(300 * KIB, round)), b.recv()]);
      expect(numberOf(got.message)).toBe(round);
      await b.close();
      await a.untilPeers(0);
    }
  });

  test("two nodes that dial each other at once end with one connection", async () => {
    const tls = {
      alpha: await authority.issue({ cn: "alpha" }),
      omega: await authority.issue({ cn: "omega" }),
    };
    for (let i = 0; i < 20; i++) {
      await using net = new Net();
      const [a, b] = [
        await net.node("alpha", { tls: tls.alpha }),
        await net.node("omega", { tls: tls.omega }),
      ];
      expect(
        await within(
          Promise.all([a.transport.connect(b.address), b.transport.connect(a.address)]),
          "both to connect",
        ),
      ).toEqual(["omega", "alpha"]);
      await Promise.all([a.sendNumbered("omega", 20), b.sendNumbered("alpha", 20)]);
      await Promise.all([a.takeNumbered(20), b.takeNumbered(20)]);
      const counts = () =>
        [a, b].flatMap((node) => [node.transport.stats().connections, node.transport.stats().handshakes]);
      await until(() => counts().join() === "1,0,1,0", "one connection");
    }
  }, 10_000);

  test("unix sockets work too", async () => {
    const home = mkdtempSync(join(tmpdir(), "zap-"));
    try {
      await using net = new Net();
      const b = await net.node("b", {
        tls: await authority.issue({ cn: "b" }),
        listen: `unix:${home}/b.sock`,
      });
      const a = await net.node("a", { tls: await authority.issue({ cn: "a" }) });
      expect(await within(a.transport.connect(b.address), "connect")).toBe("b");
      const [, got] = await Promise.all([a.send("b", messageOf(300 * KIB, 1)), b.recv()]);
      expect(isMessage(got.message, 1)).toBe(true);
    } finally {
      rmSync(home, { recursive: true, force: true });
    }
  });

  test("keys and certificates may be bytes or lists", async () => {
    await using net = new Net();
    const other = await Authority.make("Another Authority");
    const bytes = async (id: string) => {
      const { cert, key, ca } = await authority.issue({ cn: id });
      const encode = (pem: unknown) => new TextEncoder().encode(String(pem));
      return { cert: encode(cert), key: encode(key), ca: [other.pem, encode(ca)] };
    };
    const [a, b] = [
      await net.node("a", { tls: await bytes("a") }),
      await net.node("b", { tls: await bytes("b") }),
    ];
    expect(await within(a.transport.connect(b.address), "connect")).toBe("b");
  });
});

describe("a node id in a certificate may be", () => {
  const id = "validator-7.example.org";
  const cases: [string, Parameters<Authority["issue"]>[0]][] = [
    ["its common name", { cn: id }],
    ["a DNS name", { cn: "somebody", dns: ["other.example.org", id] }],
    ["a DNS name, with no common name", { dns: [id] }],
  ];
  for (const [what, fields] of cases) {
    test(`${what}, on either side`, async () => {
      await using net = new Net();
      const node = await net.node("node", { tls: await authority.issue({ cn: "node" }) });
      const peer = await net.node(id, { tls: await authority.issue(fields) });
      expect(await within(peer.transport.connect(node.address), "the peer to connect")).toBe("node");
      await node.untilPeers(1);
      await peer.close();
      await node.untilPeers(0);
      const again = await net.node(id, { tls: await authority.issue(fields) });
      expect(await within(node.transport.connect(again.address), "the node to connect")).toBe(id);
    });
  }

  test("a URI", async () => {
    const spiffe = "spiffe://example.org/validator/7";
    await using net = new Net();
    const node = await net.node("node", { tls: await authority.issue({ cn: "node" }) });
    const peer = await net.node(spiffe, { tls: await authority.issue({ cn: "x", uri: [spiffe] }) });
    expect(await within(peer.transport.connect(node.address), "the peer to connect")).toBe("node");
    const [, got] = await Promise.all([peer.send("node", messageOf(64, 1)), node.recv()]);
    expect(got.peer).toBe(spiffe);
  });
});

describe("a bare peer with a good certificate", () => {
  test("is a peer like any other", async () => {
    await using net = new Net();
    const node = await net.node("node", { tls: await authority.issue({ cn: "node" }) });
    const { cert, key, ca } = await authority.issue({ cn: "go-7" });
    const raw = await net.raw(node, { tls: { cert, key, ca, rejectUnauthorized: false } as Bun.TLSOptions });
    raw.write(joined(helloOf("go-7"), frameOf(messageOf(64, 4))));
    const got = await node.recv();
    expect([got.peer, numberOf(got.message)]).toEqual(["go-7", 4]);
    expect(await raw.frame()).toEqual(helloOf("node").subarray(4));
  });
});
