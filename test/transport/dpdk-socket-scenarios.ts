/** What dpdk-socket.script.ts can play. Each throws where something is not as it should be. */
import { expect } from "bun:test";
import type { DatagramLink } from "../support/datagram-link.ts";
import { isMessage, messageOf, numberOf, sameBytes } from "../support/messages.ts";
import type { Node } from "../support/nodes.ts";
import { failureOf, until, within } from "../support/wait.ts";
import { Bench, type Family } from "./dpdk-socket-bench.ts";
import { HOSTILE } from "./dpdk-socket-hostile.ts";

const KIB = 1_024;
const SIZES = [16, 20, 1_000, 1_384, 1_385, 1_408, 1_409, 5_000, 64 * KIB, 300_000, KIB * KIB];

/** Messages of every size, both ways at the same time. */
export async function bothWays(node: Node, link: DatagramLink, peer = link.setup.peer): Promise<void> {
  const id = node.transport.peers()[0]!;
  expect(peer).toBe("node");
  const out = SIZES.map((bytes, n) => node.transport.send(id, messageOf(bytes, n)));
  const sent = SIZES.map((bytes, n) => link.send(messageOf(bytes, n)));
  for (const [n, bytes] of SIZES.entries()) {
    const got = await node.recv(8_000);
    expect([got.peer, got.message.length, sameBytes(got.message, messageOf(bytes, n))]).toEqual([
      id,
      bytes,
      true,
    ]);
  }
  for (const [n, bytes] of SIZES.entries()) {
    const message = await link.recv();
    expect([message.length, isMessage(message, n)]).toEqual([bytes, true]);
  }
  await within(Promise.all([...out, ...sent]), "acknowledgements");
  expect(node.troubles).toEqual([]);
}

const came = (node: Node, type: string) => node.events.filter((event) => event.type === type);

async function socketDials(family: Family): Promise<void> {
  await using bench = new Bench();
  const { node, socket, link } = await bench.pair({}, family);
  expect(came(node, "connected")).toEqual([
    { type: "connected", peer: "socket", address: socket.address, dialled: false },
  ]);
  await bothWays(node, link);
  // What was sent before the end arrives before it.
  const last = [0, 1, 2].map((n) => link.send(messageOf(100_000, n)));
  await link.close();
  await Promise.all(last);
  for (const n of [0, 1, 2]) expect(isMessage((await node.recv()).message, n)).toBe(true);
  await node.untilPeers(0);
  expect(came(node, "disconnected")).toEqual([{ type: "disconnected", peer: "socket", error: null }]);
  expect(node.transport.stats()).toMatchObject({ undelivered: 0, connections: 0 });
}

async function transportDials(family: Family): Promise<void> {
  await using bench = new Bench();
  const node = await bench.node({ listen: [] });
  const socket = await bench.socket("socket", family);
  const dialling = node.transport.connect(socket.address);
  const link = await socket.accept();
  expect(await within(dialling, "connect")).toBe("socket");
  expect(came(node, "connected")).toEqual([
    { type: "connected", peer: "socket", address: socket.address, dialled: true },
  ]);
  await bothWays(node, link);
  // What the transport accepted arrives, however soon it closes.
  for (const n of [0, 1, 2]) await node.transport.send("socket", messageOf(100_000, n));
  const [report] = await Promise.all([node.close(), link.untilClosed()]);
  expect(report).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
  expect(link.closed).toBe(1);
  for (const n of [0, 1, 2]) expect(isMessage(await link.recv(), n)).toBe(true);
  expect(link.faults).toEqual([]);
}

export const SCENARIOS: Readonly<Record<string, () => Promise<void>>> = {
  ...HOSTILE,
  "dials over IPv4": () => socketDials(4),
  "dials over IPv6": () => socketDials(6),
  "is dialled over IPv4": () => transportDials(4),
  "is dialled over IPv6": () => transportDials(6),

  async "vanishes without a word"() {
    await using bench = new Bench();
    const { node, socket, link } = await bench.pair({ limits: { keepaliveMillis: 100 } });
    await bothWays(node, link);
    socket[Symbol.dispose]();
    for (let n = 0; n < 5; n++) await node.transport.send("socket", messageOf(1_000, n));
    await until(() => came(node, "disconnected").length > 0, "the end of a peer");
    expect(came(node, "disconnected")).toMatchObject([
      { peer: "socket", error: { code: "ERR_ZAP_CONNECTION_LOST" } },
    ]);
    expect(node.errors.filter(({ code }) => code === "ERR_ZAP_UNDELIVERED")).toHaveLength(1);
    expect(await node.untilError("ERR_ZAP_UNDELIVERED", "socket")).toContain("5");
    expect(node.transport.stats()).toMatchObject({ undelivered: 5, connections: 0, queuedOutMessages: 0 });
    // It may come again, from elsewhere.
    const again = await bench.socket("socket");
    const second = await again.dial(bench.there[4]);
    await second.send(messageOf(5_000, 9));
    expect(isMessage((await node.recv()).message, 9)).toBe(true);
  },

  async "comes again on the same address"() {
    await using bench = new Bench();
    const { node, socket, link } = await bench.pair();
    await link.send(messageOf(64, 1));
    const { port } = socket;
    socket[Symbol.dispose]();
    await node.transport.send("socket", messageOf(64, 2));
    const again = await bench.socket("socket", 4, { port });
    const second = await again.dial(bench.there[4]);
    await until(() => came(node, "connected").length === 2, "the new flow");
    // What the first one delivered is still there to be taken, before anything of the second.
    await second.send(messageOf(64, 3));
    expect(numberOf((await node.recv()).message)).toBe(1);
    expect(numberOf((await node.recv()).message)).toBe(3);
    await node.send("socket", messageOf(64, 4));
    expect(numberOf(await second.recv())).toBe(4);
    expect(node.events.map(({ type }) => type).filter((type) => type !== "error")).toEqual([
      "connected",
      "disconnected",
      "connected",
    ]);
    expect(await node.untilError("ERR_ZAP_UNDELIVERED", "socket")).toContain("1");
    expect(node.transport.peers()).toEqual(["socket"]);
  },

  async "has a twin elsewhere"() {
    await using bench = new Bench();
    const { node, link } = await bench.pair();
    const twin = await bench.socket("socket");
    const second = await twin.dial(bench.there[4]);
    // The first one answers, so the second one is turned away.
    expect(await second.untilClosed()).toBe(3);
    expect(node.transport.stats().drops["datagram.twin"]).toBeGreaterThan(0);
    await bothWays(node, link);
  },

  async "takes no message as large as that"() {
    await using bench = new Bench();
    const node = await bench.node();
    const socket = await bench.socket("socket", 4, { terms: { largest: 50_000 } });
    const link = await socket.dial(bench.there[4]);
    await node.untilPeers(1);
    await node.transport.send("socket", messageOf(50_000, 1));
    await node.transport.send("socket", messageOf(50_001, 2));
    await node.transport.send("socket", messageOf(64, 3));
    for (const n of [1, 3]) expect(isMessage(await link.recv(), n)).toBe(true);
    expect(await node.untilError("ERR_ZAP_UNDELIVERED", "socket")).toContain("1");
    expect(node.transport.stats()).toMatchObject({ undelivered: 1, connections: 1, queuedOutMessages: 0 });
  },

  async "dials while it is dialled"() {
    await using bench = new Bench();
    const node = await bench.node();
    // Of the two flows the one that the smaller id dialled stays.
    for (const id of ["a", "z"]) {
      const socket = await bench.socket(id);
      const theirs = socket.dial(bench.there[4]).then(
        () => "stays",
        () => "goes",
      );
      expect(await within(node.transport.connect(socket.address), "connect")).toBe(id);
      expect([id, await theirs]).toEqual([id, id < "node" ? "stays" : "goes"]);
      const links = [...socket.links.values()].filter(
        ({ heard, closed, deaf }) => heard && !deaf && closed === null,
      );
      expect(links).toHaveLength(1);
      const [link] = links;
      await link!.send(messageOf(2_000, 5));
      expect((await node.recv()).peer).toBe(id);
      await node.send(id, messageOf(2_000, 6));
      expect(isMessage(await link!.recv(), 6)).toBe(true);
      expect(came(node, "connected")).toHaveLength(id === "a" ? 1 : 2);
    }
    expect(node.troubles).toEqual([]);
  },

  async "is slowed down by a node that takes nothing"() {
    await using bench = new Bench();
    const recvQueueBytes = 256 * KIB;
    const { node, link } = await bench.pair({ limits: { recvQueueBytes } });
    const count = 200;
    const sent = Array.from({ length: count }, (_, n) => link.send(messageOf(10_000, n)));
    let done = 0;
    for (const each of sent) void each.then(() => done++);
    await until(() => node.transport.stats().queuedInBytes > recvQueueBytes - 10_000, "a full queue");
    await Bun.sleep(300);
    expect(node.transport.stats().queuedInBytes).toBeLessThanOrEqual(recvQueueBytes);
    expect(done).toBeLessThanOrEqual(recvQueueBytes / 10_000);
    await node.takeNumbered(count, 20_000);
    await within(Promise.all(sent), "acknowledgements");
    expect(node.troubles).toEqual([]);
  },

  async "slows down a node that sends without end"() {
    await using bench = new Bench();
    const sendQueueBytes = 256 * KIB;
    const { node, link } = await bench.pair({ limits: { sendQueueBytes, keepaliveMillis: 5_000 } });
    link.deaf = true;
    let accepted = 0;
    const sending = (async () => {
      for (let n = 0; n < 200; n++) {
        await node.transport.send("socket", messageOf(10_000, n));
        accepted++;
      }
    })();
    await until(() => node.transport.stats().waitingSends === 1, "a send that waits");
    expect(node.transport.stats().queuedOutBytes).toBeLessThanOrEqual(sendQueueBytes);
    expect(node.transport.trySend("socket", messageOf(10_000))).toBe(false);
    expect(accepted).toBeLessThanOrEqual(sendQueueBytes / 10_000);
    link.deaf = false;
    for (let n = 0; n < 200; n++) expect(isMessage(await link.recv(), n)).toBe(true);
    await within(sending, "sends");
    expect(node.troubles).toEqual([]);
  },

  async "refuses to be dialled"() {
    await using bench = new Bench();
    const node = await bench.node();
    for (const [refuse, words] of [
      [7, "allow-list"],
      [6, "no room"],
    ] as const) {
      const socket = await bench.socket("socket", 4, { refuse });
      const error = await failureOf(node.transport.connect(socket.address));
      expect(error.code).toBe("ERR_ZAP_HANDSHAKE");
      expect(error.message).toContain(socket.address);
      expect(error.message).toContain(words);
    }
    expect(node.transport.peers()).toEqual([]);
  },
};
