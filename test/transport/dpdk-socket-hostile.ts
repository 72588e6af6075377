/** What dpdk-socket.script.ts can play, with a socket that does what no node does. */
import { expect } from "bun:test";
import {
  ANSWER,
  KIND,
  closeOf,
  helloOf,
  initOf,
  seal,
  segmentOf,
  serial,
  type Segment,
} from "../support/datagrams.ts";
import type { DatagramLink } from "../support/datagram-link.ts";
import { isMessage, messageOf } from "../support/messages.ts";
import type { Node } from "../support/nodes.ts";
import { diceOf } from "../support/properties.ts";
import { until } from "../support/wait.ts";
import { Bench } from "./dpdk-socket-bench.ts";

type Drops = Record<string, number>;

/**
 * The kernel at the other end has things of its own to say, to groups and about them; and the socket's flow sends a segment again whose
 * acknowledgement is late.
 */
const CHATTER = new Set([
  ...["frame.station", "frame.protocol", "frame.ethertype", "frame.extension"],
  "datagram.duplicate",
]);

/** What was dropped since `before`. */
function dropped(node: Node, before: Readonly<Drops>): Drops {
  const since: Drops = {};
  for (const [name, count] of Object.entries(node.transport.stats().drops))
    if (count !== (before[name] ?? 0) && !CHATTER.has(name)) since[name] = count - (before[name] ?? 0);
  return since;
}

/** Waits until exactly `wanted` was dropped, and for nothing else to follow. */
async function expectDropped(node: Node, before: Readonly<Drops>, wanted: Drops): Promise<void> {
  const sum = (drops: Drops) => Object.values(drops).reduce((all, count) => all + count, 0);
  await until(() => sum(dropped(node, before)) >= sum(wanted), "drops").catch(() => {});
  expect(dropped(node, before)).toEqual(wanted);
}

/** The flow lives: a message each way. */
async function expectAlive(node: Node, link: DatagramLink): Promise<void> {
  await link.send(messageOf(3_000, 77));
  expect(isMessage((await node.recv()).message, 77)).toBe(true);
  await node.send("socket", messageOf(3_000, 78));
  expect(isMessage(await link.recv(), 78)).toBe(true);
  expect(node.troubles).toEqual([]);
}

/** A segment of a message of `bytes` bytes as `link` would send it next, with other fields. */
function segment(link: DatagramLink, fields: Partial<Segment>, payload = 100, flags = 0): Buffer {
  const next = link.next();
  const whole = { ...next, length: payload, offset: 0, ...fields };
  return segmentOf(link.setup.theirSession, whole, { payload: new Uint8Array(payload), flags });
}

export const HOSTILE: Readonly<Record<string, () => Promise<void>>> = {
  async "says hello without a good cookie"() {
    await using bench = new Bench();
    const node = await bench.node();
    const socket = await bench.socket("socket");
    const to = bench.there[4];
    const client = socket.client();
    const cookie = await socket.cookie(to, client);
    const terms = socket.terms();
    const mac = Uint8Array.from(cookie.mac, (byte, at) => (at === 15 ? byte ^ 1 : byte));
    const hellos = [
      // Forged, none, and one of a time that is over.
      helloOf(client, { ...cookie, mac }, terms),
      helloOf(client, { slot: cookie.slot, mac: new Uint8Array(16) }, terms),
      helloOf(client, { slot: 0, mac: new Uint8Array(16) }, terms),
      helloOf(client, { ...cookie, slot: serial(cookie.slot, 2) >>> 0 }, terms),
      helloOf(client, { ...cookie, slot: serial(cookie.slot, -1) >>> 0 }, terms),
      // Made out to another session, nonce or node.
      helloOf({ ...client, session: client.session ^ 2n }, cookie, terms),
      helloOf({ ...client, nonce: new Uint8Array(16) }, cookie, terms),
      helloOf({ ...client, id: "another" }, cookie, terms),
    ];
    for (const hello of hellos) socket.put(hello, to);
    // Made out to another address.
    const thief = await bench.socket("socket");
    thief.put(helloOf(client, cookie, terms), to);
    await expectDropped(node, {}, { "datagram.cookie": hellos.length + 1 });
    expect(node.transport.stats()).toMatchObject({ connections: 0, handshakes: 0 });
    expect(
      [socket, thief].flatMap(({ counts }) => [counts.get(KIND.welcome), counts.get(KIND.refuse)]),
    ).toEqual(Array(4).fill(undefined));
    expect([node.transport.peers(), node.events]).toEqual([[], []]);
    // The cookie itself is good, and is so again: that makes a candidate and no peer.
    for (let i = 0; i < 3; i++) await socket.hello(to, client, cookie);
    expect(node.transport.stats()).toMatchObject({ connections: 0, handshakes: 1 });
    expect([node.transport.peers(), node.events]).toEqual([[], []]);
  },

  async "says hello again long after its flow"() {
    await using bench = new Bench();
    const node = await bench.node();
    const socket = await bench.socket("socket");
    const to = bench.there[4];
    const client = socket.client();
    const cookie = await socket.cookie(to, client);
    const link = await socket.dial(to);
    await node.untilPeers(1);
    // An old HELLO of the same node beside its flow: it changes nothing until it is confirmed, and a stranger cannot confirm it.
    await socket.hello(to, client, cookie);
    await expectAlive(node, link);
    expect(node.transport.stats()).toMatchObject({ connections: 1, handshakes: 1 });
    const before = node.transport.stats().drops;
    socket.put(segmentOf(client.session, link.next(), { flags: ANSWER }), to);
    await expectDropped(node, before, { "datagram.session": 1 });
    expect(node.transport.peers()).toEqual(["socket"]);
  },

  async "is not on the allow-list"() {
    await using bench = new Bench();
    const node = await bench.node({ allow: ["friend"] });
    const stranger = await bench.socket("stranger");
    const error = await stranger.dial(bench.there[4]).then(
      () => "let in",
      (reason: Error) => reason.message,
    );
    expect(error).toBe("refused with reason 7");
    expect(node.transport.stats().drops["datagram.allow"]).toBeGreaterThan(0);
    expect(node.transport.peers()).toEqual([]);
    const friend = await bench.socket("friend");
    const link = await friend.dial(bench.there[4]);
    await node.untilPeers(1);
    await link.send(messageOf(64, 1));
    expect((await node.recv()).peer).toBe("friend");
  },

  async "claims to be the node itself"() {
    await using bench = new Bench();
    const node = await bench.node();
    const twin = await bench.socket("node");
    const client = twin.client();
    const answer = await twin.hello(bench.there[4], client, await twin.cookie(bench.there[4], client));
    expect([answer.kind, answer.reason]).toEqual([KIND.refuse, 8]);
    expect(node.transport.peers()).toEqual([]);
  },

  async "floods it with beginnings"() {
    await using bench = new Bench();
    const { node, socket, link } = await bench.pair({ limits: { handshakes: 8 } });
    const to = bench.there[4];
    // INIT: an answer each, or none where it cannot keep up, and nothing is kept.
    for (let n = 0; n < 3_000; n++) {
      socket.put(initOf({ ...socket.client(), id: `nobody-${n}` }), to);
      if (n % 100 === 0) await Bun.sleep(1);
    }
    await until(() => (socket.counts.get(KIND.cookie) ?? 0) > 1_000, "cookies");
    expect(node.transport.stats()).toMatchObject({ connections: 1, handshakes: 0 });
    await expectAlive(node, link);
    // HELLO with a good cookie: the places are few, and the oldest gives way.
    const strangers = await Promise.all(Array.from({ length: 24 }, (_, n) => bench.socket(`stranger-${n}`)));
    for (const stranger of strangers) await stranger.hello(to, ...(await dialOf(stranger, to)));
    expect(node.transport.stats()).toMatchObject({ connections: 1, handshakes: 8 });
    await expectAlive(node, link);
    const friend = await bench.socket("friend");
    await expectGood(node, await friend.dial(to));
    expect(node.transport.peers().sort()).toEqual(["friend", "socket"]);
  },

  async "sends garbage"() {
    await using bench = new Bench();
    const { node, socket, link } = await bench.pair();
    const to = bench.there[4];
    await expectAlive(node, link);
    const before = node.transport.stats().drops;
    const dice = diceOf(5);
    const noise = (bytes: number) =>
      Buffer.from(Array.from({ length: bytes }, () => Math.floor(dice() * 256)));
    const wanted: Drops = {};
    const put = (datagram: Uint8Array, reason: string) => {
      socket.put(datagram, to);
      wanted[reason] = (wanted[reason] ?? 0) + 1;
    };
    const good = segment(link, {});
    for (let round = 0; round < 20; round++) {
      for (const bytes of [1, 3, 24, 200, 1_472]) {
        const datagram = noise(bytes);
        datagram[0] = 0x41;
        put(datagram, "frame.magic");
      }
      for (const bytes of [4, 23, 24, 64, 700, 1_472]) {
        const datagram = noise(bytes);
        datagram.set([0x5a, 0x41, 0x50, 0, 2 + (round % 200)].slice(0, bytes));
        put(datagram, bytes < 24 ? "datagram.short" : "datagram.version");
      }
      for (const bytes of [24, 200, 1_472]) {
        const datagram = noise(bytes);
        datagram.set([0x5a, 0x41, 0x50, 0, 1, round % 2 === 0 ? 0 : 9 + round]);
        put(datagram, "datagram.kind");
      }
      for (let kind = 1; kind <= 8; kind++) {
        const datagram = noise(1_472);
        datagram.set([0x5a, 0x41, 0x50, 0, 1, kind]);
        put(datagram, "datagram.checksum");
        put(datagram.subarray(0, 31), "datagram.layout");
      }
      // A good one with one bit turned over, anywhere behind the kind.
      const damaged = Buffer.from(good);
      const bit = Math.floor(dice() * 8 * (damaged.length - 6));
      damaged[6 + (bit >> 3)]! ^= 1 << (bit & 7);
      put(damaged, "datagram.checksum");
      put(good.subarray(0, 64 + round), "datagram." + (round === 0 ? "layout" : "checksum"));
      // What the socket's queue and the device's do not hold would not be counted.
      await Bun.sleep(2);
    }
    await expectDropped(node, before, wanted);
    await expectAlive(node, link);
  },

  async "sends sealed nonsense"() {
    await using bench = new Bench();
    const { node, socket, link } = await bench.pair();
    const to = bench.there[4];
    const before = node.transport.stats().drops;
    const wanted: Drops = {};
    const put = (datagram: Uint8Array, reason: string, from = socket) => {
      from.put(datagram, to);
      wanted[reason] = (wanted[reason] ?? 0) + 1;
    };
    const other = await bench.socket("other");
    const next = link.next();
    const { credits } = (await other.hello(to, ...(await dialOf(other, to)))).terms;
    // Right in itself, of a flow that is not there, or from where its peer is not.
    put(segmentOf(link.setup.theirSession ^ 1n, next), "datagram.session");
    put(segmentOf(link.setup.theirSession, next), "datagram.address", other);
    put(segment(link, {}), "datagram.address", other);
    put(closeOf(link.setup.theirSession, 1, 0), "datagram.address", other);
    put(closeOf(link.setup.theirSession ^ 1n, 1, 0), "datagram.session");
    // Sizes that do not add up.
    put(segment(link, { length: 99 }), "datagram.layout");
    put(segment(link, { length: 0 }), "datagram.layout");
    put(segment(link, { length: 2 ** 30 + 1 }), "datagram.layout");
    put(segment(link, { offset: 100 }), "datagram.layout");
    put(segment(link, { offset: 0xffff_ffff, length: 50 }), "datagram.layout");
    put(segment(link, { limit: (next.ack + 40_000) >>> 0 }), "datagram.layout");
    // Acknowledges what was never sent, and sends what nobody gave leave for.
    put(
      segmentOf(link.setup.theirSession, {
        ...next,
        ack: (next.ack + 5) >>> 0,
        limit: (next.limit + 5) >>> 0,
      }),
      "datagram.ack",
    );
    put(segment(link, { segment: (next.segment + credits) >>> 0 }), "datagram.window");
    put(segment(link, { segment: (next.segment + 0x7fff_0000) >>> 0 }), "datagram.window");
    await expectDropped(node, before, wanted);
    // Has been there before.
    await link.send(messageOf(100, 1));
    const duplicates = () => node.transport.stats().drops["datagram.duplicate"] ?? 0;
    const seen = duplicates();
    socket.put(segment(link, { segment: next.segment }), to);
    await until(() => duplicates() > seen, "a duplicate");
    expect(isMessage((await node.recv()).message, 1)).toBe(true);
    await expectAlive(node, link);
  },

  async "sends datagrams above the MTU"() {
    await using bench = new Bench();
    for (const family of [4, 6] as const) {
      const { node, socket, link } = await bench.pair({}, family);
      const before = node.transport.stats().drops;
      const large = Buffer.alloc(4_000);
      segment(link, {}).copy(large);
      seal(large);
      for (let i = 0; i < 5; i++) socket.put(large, bench.there[family]);
      const seen = () => dropped(node, before);
      const both = () => (seen()["frame.fragment"] ?? 0) + (seen()["frame.cut"] ?? 0);
      // The driver has the kernel put them together, into what does not fit its slots; or they come as they are.
      await until(() => both() >= 5, "fragments").catch(() => {});
      expect(both()).toBeGreaterThanOrEqual(5);
      expect(Object.keys(seen()).filter((name) => !["frame.fragment", "frame.cut"].includes(name))).toEqual(
        [],
      );
      await expectAlive(node, link);
      await node.close();
    }
  },

  async "sends what is no message"() {
    await using bench = new Bench();
    const { node, link } = await bench.pair();
    const before = node.transport.stats().drops;
    const sent = [
      messageOf(64, 1, { magic: 0x0050415b }),
      messageOf(64, 1, { version: 9 }),
      messageOf(64, 1, { size: 65 }),
      messageOf(64, 1, { size: 15 }),
      messageOf(64, 1).subarray(0, 15),
      messageOf(70_000, 1, { size: 70_001 }),
      new Uint8Array(70_000),
      new Uint8Array([1]),
    ].map((bytes) => link.send(bytes));
    // They were taken, so they are acknowledged.
    await Promise.all(sent);
    await expectDropped(node, before, {
      "message.magic": 2,
      "message.version": 1,
      "message.size": 3,
      "message.short": 2,
    });
    await expectAlive(node, link);
    expect(node.transport.stats().messagesIn).toBe(1);
  },

  async "breaks the protocol"() {
    await using bench = new Bench();
    const { node, socket } = await bench.pair();
    const breaks: readonly ((link: DatagramLink) => Buffer[])[] = [
      // Two lengths for one message; a message out of turn; a segment that is not full; a message above the limit.
      (link) => [
        segment(link, { length: 3 * 1_408 }, 1_408),
        segment(link, { length: 2 * 1_408, offset: 1_408, segment: link.next().segment + 1 }, 1_408),
      ],
      (link) => [segment(link, { message: link.next().message + 9 })],
      (link) => [segment(link, { length: 5_000 }, 1_000)],
      (link) => [segment(link, { length: 2 ** 30 }, 1_408)],
      (link) => [segment(link, { offset: 100, length: 200 })],
    ];
    for (const [at, broken] of breaks.entries()) {
      const link = await socket.dial(bench.there[4]);
      for (const datagram of broken(link)) socket.put(datagram, bench.there[4]);
      expect([at, await link.untilClosed()]).toEqual([at, 5]);
      await node.untilPeers(0);
    }
    const errors = node.events.flatMap((event) =>
      event.type === "disconnected" ? [event.error?.message] : [],
    );
    expect(errors.filter((text) => text?.includes("protocol"))).toHaveLength(breaks.length);
    // The next one is as good as any.
    await expectGood(node, await socket.dial(bench.there[4]));
  },
};

async function expectGood(node: Node, link: DatagramLink): Promise<void> {
  await link.send(messageOf(3_000, 5));
  expect(isMessage((await node.recv()).message, 5)).toBe(true);
}

async function dialOf(
  socket: Awaited<ReturnType<Bench["socket"]>>,
  to: Bench["there"][4],
): Promise<[ReturnType<typeof socket.client>, Awaited<ReturnType<typeof socket.cookie>>]> {
  const client = socket.client();
  return [client, await socket.cookie(to, client)];
}
