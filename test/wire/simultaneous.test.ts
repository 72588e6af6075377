import { describe, expect, test } from "bun:test";
import { messageOf } from "../support/messages.ts";
import { freeAddresses, Net, type Node } from "../support/nodes.ts";
import { SlowLink } from "../support/slow-link.ts";
import { until, within } from "../support/wait.ts";

const ROUNDS = 200;
const SIZES = [20, 64, 5_000, 20, 140_000, 300, 20, 16_390];
const MESSAGES = 24;

type Way = "address" | "configured" | "mixed";

/** Sends without waiting for each other, as an impatient caller does. */
async function sendAll(from: Node, to: string): Promise<void> {
  const sends = Array.from({ length: MESSAGES }, (_, n) =>
    from.transport.send(to, messageOf(SIZES[n % SIZES.length] ?? 20, n)),
  );
  await Promise.all(sends);
}

/** Two nodes that dial each other at the same moment and send from the first; links, where given, lead to each. */
async function round(
  net: Net,
  ids: readonly [string, string],
  ways: readonly [Way, Way],
  links: readonly SlowLink[] = [],
): Promise<[Node, Node]> {
  const addresses = links.length > 0 ? [] : freeAddresses(2);
  const dialled = links.length > 0 ? links.map((link) => link.address) : addresses;
  const options = (i: 0 | 1) => ({
    listen: addresses[i] ?? "127.0.0.1:0",
    ...(ways[i] === "configured" ? { peers: { [ids[1 - i] ?? ""]: dialled[1 - i] ?? "" } } : {}),
    limits: { reconnectMinMillis: 10, reconnectMaxMillis: 50 },
  });
  const nodes = await Promise.all([net.node(ids[0], options(0)), net.node(ids[1], options(1))]);
  for (const [i, link] of links.entries()) link.leadTo(nodes[i === 0 ? 0 : 1].address);
  const life = async (i: 0 | 1): Promise<void> => {
    const [me, other] = i === 0 ? nodes : ([nodes[1], nodes[0]] as const);
    if (ways[i] === "address") expect(await me.transport.connect(dialled[1 - i] ?? "")).toBe(other.id);
    await sendAll(me, other.id);
  };
  await within(
    Promise.all([life(0), life(1), nodes[0].takeNumbered(MESSAGES), nodes[1].takeNumbered(MESSAGES)]),
    "all messages both ways",
  );
  return nodes;
}

/** What must be so when the dust has settled. */
async function expectPeace(nodes: readonly Node[]): Promise<void> {
  const open = () =>
    nodes.map(({ transport }) => transport.stats()).map((s) => [s.connections, s.handshakes]);
  await until(
    () => open().flat().join() === "1,0,1,0",
    `one connection on each side, got ${open().join(" and ")}`,
  );
  for (const { transport } of nodes) {
    const { messagesIn, messagesOut, undelivered, queuedOutBytes, queuedInBytes } = transport.stats();
    expect({ messagesIn, messagesOut, undelivered, queuedOutBytes, queuedInBytes }).toEqual({
      ...{ messagesIn: MESSAGES, messagesOut: MESSAGES },
      ...{ undelivered: 0, queuedOutBytes: 0, queuedInBytes: 0 },
    });
  }
}

describe(`two nodes that dial each other at the same moment, ${ROUNDS} times,`, () => {
  const cases: [string, readonly [Way, Way]][] = [
    ["by address", ["address", "address"]],
    ["as configured peers", ["configured", "configured"]],
    ["one each way", ["configured", "address"]],
  ];
  for (const [what, ways] of cases) {
    test(`${what}: one connection, nothing lost, nothing twice, in order`, async () => {
      for (let i = 0; i < ROUNDS; i++) {
        await using net = new Net();
        // The rules go by whose id is smaller: both ways round.
        const nodes = await round(net, i % 2 === 0 ? ["alpha", "omega"] : ["omega", "alpha"], ways);
        await expectPeace(nodes);
        const reports = await Promise.all(nodes.map((node) => node.close()));
        expect(reports).toEqual([
          { undelivered: 0, unread: 0, buffers: 0 },
          { undelivered: 0, unread: 0, buffers: 0 },
        ]);
      }
    }, 30_000);

    test(`${what}, over links with delays of every length: the same`, async () => {
      const one = async (i: number): Promise<void> => {
        await using net = new Net();
        using toFirst = new SlowLink(6, 2 * i);
        using toSecond = new SlowLink(6, 2 * i + 1);
        const ids = i % 2 === 0 ? (["alpha", "omega"] as const) : (["omega", "alpha"] as const);
        const nodes = await round(net, ids, ways, [toFirst, toSecond]);
        await expectPeace(nodes);
      };
      for (let i = 0; i < ROUNDS; i += 20)
        await Promise.all(Array.from({ length: 20 }, (_, j) => one(i + j)));
    }, 30_000);

    test(`${what}: is no trouble, and nobody is told that it was`, async () => {
      const troubles = new Set<string>();
      for (let i = 0; i < 20; i++) {
        await using net = new Net();
        const nodes = await round(net, i % 2 === 0 ? ["alpha", "omega"] : ["omega", "alpha"], ways);
        await expectPeace(nodes);
        for (const node of nodes)
          for (const trouble of node.troubles) troubles.add(trouble.replace(/\d{4,5}/, "N"));
        for (const node of nodes) {
          const connected = node.events.filter((event) => event.type === "connected");
          const gone = node.events.filter((event) => event.type === "disconnected");
          expect(connected.length - gone.length).toBe(1);
        }
      }
      expect([...troubles]).toEqual([]);
    });
  }

  test("many of them, all with all: one connection for each pair", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 20 } });
    const count = 12;
    const addresses = freeAddresses(count);
    const ids = addresses.map((_, i) => `node-${String(i).padStart(2, "0")}`);
    const nodes = await Promise.all(
      ids.map((id, i) => {
        const others = ids.flatMap((other, j) => (i === j ? [] : [[other, addresses[j] ?? ""]]));
        return net.node(id, { listen: addresses[i] ?? "", peers: Object.fromEntries(others) });
      }),
    );
    const sending = nodes.flatMap((node) =>
      ids.filter((id) => id !== node.id).map((id) => node.sendNumbered(id, 20, 200)),
    );
    await within(
      Promise.all([...sending, ...nodes.map((node) => node.takeNumbered(20 * (count - 1)))]),
      "20 messages from each to each",
      15_000,
    );
    await until(
      () => nodes.every((node) => node.transport.stats().connections === count - 1),
      "one connection for each pair",
    );
  });
});
