/** Rule 4 of docs/wire-sockets.md: one of two connections is retired while it carries messages, and nobody is the wiser. */
import { describe, expect, test } from "bun:test";
import type { TransportOptions } from "../../lib/transport/index.ts";
import { ackOf, helloOf, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { until, within } from "../support/wait.ts";
import { GatedLink } from "./gated-link.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

interface Crossed extends Disposable {
  readonly early: Node;
  readonly late: Node;
  /** What the first connection goes through, and what the second does. */
  readonly links: readonly [GatedLink, GatedLink];
  /** `late` dials, too. */
  connect(): Promise<void>;
  /** The answer that `early` waits for gets through. */
  settle(): Promise<void>;
}

/**
 * `early` dials `late` through a gate that holds the answer, so `late` has that connection in use (and `early` does not know yet)
 * when it dials too. Both end up with two connections, one of which goes.
 */
async function crossed(
  net: Net,
  earlyId: string,
  lateId: string,
  options: { early?: TransportOptions; late?: TransportOptions } = {},
): Promise<Crossed> {
  const late = await net.node(lateId, options.late);
  const early = await net.node(earlyId, options.early);
  const links = [new GatedLink(late.address), new GatedLink(early.address)] as const;
  const [first, second] = links;
  second.openGate();
  const earlyConnects = early.transport.connect(first.address);
  await late.untilPeers(1);
  return {
    early,
    late,
    links,
    async connect() {
      expect(await within(late.transport.connect(second.address), "the second dial")).toBe(earlyId);
    },
    async settle() {
      first.openGate();
      expect(await within(earlyConnects, "the first dial")).toBe(lateId);
    },
    [Symbol.dispose]() {
      for (const link of links) link[Symbol.dispose]();
    },
  };
}

/** One connection, everything there, everything counted, and no word about it. */
async function expectPeace({ early, late, links }: Crossed, sent: readonly [number, number]): Promise<void> {
  const nodes = [early, late];
  const connections = () => nodes.map((node) => node.transport.stats().connections);
  await until(() => connections().join() === "1,1", "one connection on each side");
  const retired = links[early.id < late.id ? 1 : 0];
  await until(() => retired.over, "the retired one to be over");
  for (const [i, node] of nodes.entries()) {
    expect(node.troubles).toEqual([]);
    expect(node.transport.stats()).toMatchObject({
      ...{ messagesOut: sent[i], messagesIn: sent[1 - i], undelivered: 0, drops: {} },
      ...{ queuedOutMessages: 0, queuedOutBytes: 0, waitingSends: 0 },
    });
  }
  for (const node of nodes) expect(await node.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
  for (const node of nodes)
    expect(node.events.map((event) => event.type)).toEqual(["connected", "disconnected"]);
}

for (const [earlyId, lateId] of [
  ["x", "p"],
  ["p", "x"],
] as const) {
  describe(`a connection in use (dialled by ${earlyId}) when ${lateId} gets a second one`, () => {
    const cases: [string, readonly number[]][] = [
      ["small messages", Array.from({ length: 100 }, () => 100)],
      ["messages of every size", [20, 16_380, 300 * KIB, 64, 1 * MIB, 20, 200 * KIB, 20]],
      ["one large message", [3 * MIB]],
      ["nothing", []],
    ];
    for (const [what, sizes] of cases) {
      test(`and ${what} was sent before: all arrives in order, and nothing is called undelivered`, async () => {
        await using net = new Net();
        using both = await crossed(net, earlyId, lateId);
        const { early, late, links, connect, settle } = both;
        const sends = sizes.map((bytes, n) => late.transport.send(earlyId, messageOf(bytes, n)));
        if (sizes.length > 0) await until(() => links[0].held > 84, "messages on their way");
        await connect();
        await settle();
        await early.takeNumbered(sizes.length);
        await within(Promise.all(sends), "the sends");
        await expectPeace(both, [0, sizes.length]);
      });
    }

    test("and messages flow before, during and after, both ways: the same", async () => {
      await using net = new Net();
      using both = await crossed(net, earlyId, lateId);
      const { early, late, links, connect, settle } = both;
      const sends: Promise<void>[] = [];
      let number = 0;
      const some = (): void => {
        for (const bytes of [20, 5_000, 150 * KIB, 20])
          sends.push(late.transport.send(earlyId, messageOf(bytes, number++)));
      };
      some();
      await until(() => links[0].held > 84, "messages on their way");
      const connecting = connect();
      some();
      await connecting;
      some();
      await Bun.sleep(5);
      some();
      const settled = settle();
      some();
      await settled;
      some();
      const back = early.sendNumbered(lateId, 30, 3_000);
      await Promise.all([early.takeNumbered(number), late.takeNumbered(30)]);
      await within(Promise.all([...sends, back]), "the sends");
      await expectPeace(both, [30, number]);
    });

    for (const [whose, closeMillis] of [
      ["its reader's", { early: 100, late: 4_000 }],
      ["its writer's", { early: 4_000, late: 100 }],
    ] as const) {
      test(`and nobody takes messages at the far end for longer than ${whose} closeMillis: the same`, async () => {
        await using net = new Net();
        const limits = { recvQueueBytes: 64 * KIB, sendMillis: 400 };
        using both = await crossed(net, earlyId, lateId, {
          early: { limits: { ...limits, closeMillis: closeMillis.early } },
          late: { limits: { ...limits, closeMillis: closeMillis.late } },
        });
        const { early, late, links, connect, settle } = both;
        const sends = Array.from({ length: 40 }, (_, n) =>
          late.transport.send(earlyId, messageOf(100 * KIB, n)),
        );
        await until(() => links[0].held > 84, "messages on their way");
        await connect();
        await settle();
        // The retired connection is slow, not stuck.
        await Bun.sleep(300);
        await early.takeNumbered(40);
        await within(Promise.all(sends), "the sends");
        await expectPeace(both, [0, 40]);
      });
    }
  });
}

describe("a peer that falls silent when one of its two connections is to go", () => {
  for (const [nodeId, peerId] of [
    ["p", "x"],
    ["x", "p"],
  ] as const) {
    test(`is found out (the node is ${nodeId})`, async () => {
      await using net = new Net({ limits: { keepaliveMillis: 30, closeMillis: 150 } });
      using listener = new RawListener();
      const node = await net.node(nodeId);
      const first = await net.rawPeer(node, peerId, 1);
      await node.send(peerId, messageOf(64, 1));
      const connecting = node.transport.connect(listener.address);
      const second = await listener.socket();
      await second.frame();
      second.write(helloOf(peerId, 1));
      expect(await within(connecting, "connect")).toBe(peerId);
      // From here on it says nothing, and hangs up nowhere.
      await until(() => node.transport.peers().length === 0, "the peer to be gone", 3_000);
      await until(() => (first.closed || first.ended) && (second.closed || second.ended), "both to be over");
      await node.untilError("ERR_ZAP_UNDELIVERED", peerId);
      expect(node.transport.stats()).toMatchObject({ connections: 0, undelivered: 1 });
      // It may come again.
      const again = await net.rawPeer(node, peerId, 1);
      again.writeFrame(messageOf(64, 2));
      expect(numberOf((await node.recv()).message)).toBe(2);
    });
  }
});

describe("a connection that its peer half-closes", () => {
  test("while messages go both ways loses and reports none of them", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 10, sendMillis: 200 } });
    const node = await net.node("node");
    for (let round = 0; round < 5; round++) {
      const raw = await net.rawPeer(node, "leaving", 1);
      const sends = [100, 300 * KIB, 100].map((bytes, n) =>
        node.transport.send("leaving", messageOf(bytes, n)),
      );
      for (let n = 0; n < 10; n++) raw.writeFrame(messageOf(1_000, n));
      await node.takeNumbered(10);
      const got: number[] = [];
      while (got.length < 3) got.push(numberOf(await raw.message()));
      expect(got).toEqual([0, 1, 2]);
      await Promise.all(sends);
      // An orderly end: what it took is acknowledged last.
      raw.write(ackOf(3));
      raw.shutdown();
      await node.untilPeers(0);
      await raw.untilClosed();
    }
    expect([node.troubles, node.transport.stats().undelivered]).toEqual([[], 0]);
  });
});
