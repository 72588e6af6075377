import { describe, expect, test } from "bun:test";
import type { Above, Link } from "../../../lib/wire/sockets/above.ts";
import { sayOffer, sayReady } from "../../../lib/wire/verbs/said.ts";
import { messageOf } from "../../support/messages.ts";
import { failureOf, isSettled, until, within } from "../../support/wait.ts";
import { numbers, PlainNode, upTo, VerbsNode } from "./node.ts";

describe("queue pairs", () => {
  test("come up over the sockets wire, once for each peer, and messages go both ways", async () => {
    await using a = await VerbsNode.open("a");
    await using b = await VerbsNode.open("b");
    expect(await within(b.wire.connect(a.address), "connect")).toBe("a");
    await until(() => a.wire.peers().length === 1, "the pair");
    expect([a.wire.peers(), b.wire.peers()]).toEqual([["b"], ["a"]]);
    expect([a.double.connected.length, b.double.connected.length]).toEqual([1, 1]);
    for (let i = 0; i < 20; i++) {
      await a.wire.send("b", messageOf(20 + i * 1_000, i));
      await b.wire.send("a", messageOf(20 + i * 3_000, i));
    }
    expect(await numbers(b.wire, 20)).toEqual(upTo(20));
    expect(await numbers(a.wire, 20)).toEqual(upTo(20));
    expect(b.events).toEqual([{ type: "connected", peer: "a", address: a.address, dialled: true }]);
    expect(a.events).toMatchObject([{ type: "connected", peer: "b", dialled: false }]);
    await until(() => a.wire.stats().queuedOutMessages === 0, "all to be told of");
    const stats = a.wire.stats();
    expect(stats).toMatchObject({
      bytesCopied: 0,
      messagesIn: 20,
      messagesOut: 20,
      connections: 1,
      handshakes: 0,
    });
    expect(stats.rdma).toMatchObject({
      device: "double0",
      method: "page-locked",
      link: "RoCE",
      portUp: true,
    });
    expect(a.double.kicks).toBeGreaterThan(0);
  });

  test("what is sent before waits in line, and goes in order", async () => {
    await using b = await VerbsNode.open("b");
    await using a = await VerbsNode.open("a", { peers: { b: b.address } });
    const sent = upTo(10).map((number) => a.wire.send("b", messageOf(64, number)));
    await within(Promise.all(sent), "the sends");
    expect(await numbers(b.wire, 10)).toEqual(upTo(10));
  });

  test("a peer that does not come up in time rejects what waits for it", async () => {
    await using a = await VerbsNode.open("a", { peers: { b: "127.0.0.1:9" }, limits: { sendMillis: 60 } });
    expect((await failureOf(a.wire.send("b", messageOf(64)))).code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    expect((await failureOf(a.wire.send("c", messageOf(64)))).code).toBe("ERR_ZAP_UNKNOWN_PEER");
  });

  test("two nodes that dial each other end up with one, and nothing is lost or doubled", async () => {
    for (let round = 0; round < 12; round++) {
      await using a = await VerbsNode.open("a");
      await using b = await VerbsNode.open("b");
      const dials = [a.wire.connect(b.address), b.wire.connect(a.address)];
      const ids = await within(Promise.all(dials), "both dials");
      expect(ids).toEqual(["b", "a"]);
      const sends = upTo(50).flatMap((number) => [
        a.wire.send("b", messageOf(64, number)),
        b.wire.send("a", messageOf(64, number)),
      ]);
      await within(Promise.all(sends), "the sends");
      expect(await numbers(a.wire, 50)).toEqual(upTo(50));
      expect(await numbers(b.wire, 50)).toEqual(upTo(50));
      expect([a.double.connected.length, b.double.connected.length]).toEqual([1, 1]);
      expect([a.kinds(), b.kinds()]).toEqual([["connected"], ["connected"]]);
    }
  });

  test("nodes that have each other configured, too", async () => {
    await using a = await VerbsNode.open("a");
    await using b = await VerbsNode.open("b", { peers: { a: a.address } });
    await using c = await VerbsNode.open("c", { peers: { a: a.address, b: b.address } });
    await until(() => [a, b, c].every(({ wire }) => wire.peers().length === 2), "all pairs");
    for (const [from, to] of [
      [a, b],
      [b, c],
      [c, a],
    ] as const) {
      await from.wire.send(to.wire.nodeId, messageOf(64, 7));
      expect(await numbers(to.wire, 1)).toEqual([7]);
    }
  });
});

/** The far end of a link, played by a test. */
class FarEnd implements Above {
  link: Link | null = null;
  readonly heardMessages: Uint8Array[] = [];
  up(_peer: string, link: Link | null): void {
    this.link = link;
  }
  down(): void {
    this.link = null;
  }
  heard(_link: Link, message: Uint8Array): void {
    this.heardMessages.push(message.slice());
  }
  queued(): void {}
}

describe("a far end that lies", () => {
  const offer = (change: (view: DataView) => void = () => {}): Uint8Array => {
    const bytes = new Uint8Array(80);
    const view = new DataView(bytes.buffer);
    [0x3144475a, 5, 6, 0, 1024, 1, 8192, 64, 2 ** 20, 4].forEach((value, at) =>
      view.setUint32(4 * at, value, true),
    );
    change(view);
    return bytes;
  };
  const cases: Record<string, { readonly says: readonly Uint8Array[]; readonly fault: string }> = {
    "with another magic": {
      says: [sayOffer(offer((view) => view.setUint32(0, 1, true)))],
      fault: "of another version",
    },
    "with a queue pair of 25 bits": {
      says: [sayOffer(offer((view) => view.setUint32(4, 2 ** 24, true)))],
      fault: "queue_pair is 16777216",
    },
    "with no receives": {
      says: [sayOffer(offer((view) => view.setUint32(28, 0, true)))],
      fault: "receives is 0",
    },
    "with an offer that is cut": { says: [sayOffer(new Uint8Array(79))], fault: "and this one 79" },
    "with one that is too long": { says: [sayOffer(new Uint8Array(81))], fault: "and this one 81" },
    "with two offers": { says: [sayOffer(offer()), sayOffer(offer())], fault: "second offer" },
    "that is ready before it made one": { says: [sayReady()], fault: "before it made an offer" },
    "with a message of a user's": { says: [messageOf(400, 1)], fault: "say nothing" },
  };
  for (const [name, { says, fault }] of Object.entries(cases)) {
    test(`${name} is a handshake error that names it, and the node lives on`, async () => {
      await using a = await VerbsNode.open("a");
      const far = new FarEnd();
      await using liar = await PlainNode.open("liar", {}, far);
      await liar.wire.connect(a.address);
      await until(() => far.link !== null, "the link");
      for (const message of says) far.link?.say(message);
      await until(() => a.kinds().length > 0, "an error");
      expect(a.kinds()).toEqual(["ERR_ZAP_HANDSHAKE"]);
      expect(a.errors()[0]).toContain("peer liar (127.0.0.1:");
      expect(a.errors()[0]).toContain(fault);
      await until(() => far.link === null, "the end of the link");
      await until(() => a.double.flows.size === 0, "the end of the queue pair");
      expect(a.wire.peers()).toEqual([]);
      await using honest = await VerbsNode.open("honest");
      expect(await within(honest.wire.connect(a.address), "connect")).toBe("a");
    });
  }

  test("and its own connect says why it was turned away", async () => {
    await using a = await VerbsNode.open(
      "a",
      {},
      { refuses: "the peer's port is InfiniBand and ours is not" },
    );
    await using b = await VerbsNode.open("b");
    const refused = await failureOf(a.wire.connect(b.address));
    expect(refused.code).toBe("ERR_ZAP_HANDSHAKE");
    expect(refused.message).toContain("peer b (127.0.0.1:");
    expect(refused.message).toContain("the peer's port is InfiniBand and ours is not");
  });

  test("one whose queue pair cannot be reached is told of with the reason", async () => {
    await using a = await VerbsNode.open("a", {}, { rises: 110 });
    await using b = await VerbsNode.open("b");
    const lost = await failureOf(a.wire.connect(b.address));
    expect(lost.code).toBe("ERR_ZAP_CONNECTION_LOST");
    expect(lost.message).toContain(
      "RDMA cannot be set up: its queue pair cannot be reached (unreachable, ETIMEDOUT)",
    );
    expect(a.kinds()).not.toContain("connected");
    expect(b.kinds()).not.toContain("connected");
  });

  test("one whose queue pair never comes up is given up in time, and the far end was told nothing", async () => {
    await using a = await VerbsNode.open("a", { limits: { handshakeMillis: 80 } }, { rises: false });
    await using b = await VerbsNode.open("b");
    const lost = await failureOf(a.wire.connect(b.address));
    expect(lost.message).toContain("not finished within 80 ms (limits.handshakeMillis)");
    expect(b.kinds()).not.toContain("connected");
    expect(a.double.abortedFlows.length).toBe(1);
  });

  test("one that says nothing is given up in time", async () => {
    await using a = await VerbsNode.open("a", { limits: { handshakeMillis: 80 } });
    const far = new FarEnd();
    await using mute = await PlainNode.open("mute", {}, far);
    await mute.wire.connect(a.address);
    await until(() => a.kinds().length > 0, "an error");
    expect(a.errors()[0]).toContain("not finished within 80 ms (limits.handshakeMillis)");
    expect(far.heardMessages.length).toBe(1);
  });

  test("more peers than there may be queue pairs: the last one hears of it", async () => {
    await using a = await VerbsNode.open("a", {}, { flows: 1 });
    await using b = await VerbsNode.open("b");
    await using c = await VerbsNode.open("c");
    await within(b.wire.connect(a.address), "the first");
    const second = c.wire.connect(a.address);
    expect((await failureOf(second)).code).toMatch(/^ERR_ZAP_(CLOSED|CONNECTION_LOST|HANDSHAKE)$/);
    expect(a.kinds()).toContain("ERR_ZAP_LIMIT");
    expect(a.wire.peers()).toEqual(["b"]);
  });
});

describe("nodes that cannot do RDMA", () => {
  test("are reached over the sockets wire, and count as any other", async () => {
    await using a = await VerbsNode.open("a");
    await using plain = await PlainNode.open("plain");
    expect(await within(plain.wire.connect(a.address), "connect")).toBe("a");
    await until(() => a.wire.peers().length === 1, "the peer");
    for (let i = 0; i < 30; i++) {
      await plain.wire.send("a", messageOf(64 + 1_000 * i, i));
      await a.wire.send("plain", messageOf(64 + 1_000 * i, i));
    }
    expect(await numbers(a.wire, 30)).toEqual(upTo(30));
    expect(await numbers(plain.wire, 30)).toEqual(upTo(30));
    expect(a.double.flows.size).toBe(0);
    expect(a.wire.stats()).toMatchObject({ messagesIn: 30, messagesOut: 30, connections: 1 });
    expect(a.kinds()).toEqual(["connected"]);
  });

  test("what waits for one of unknown kind goes there in order", async () => {
    await using plain = await PlainNode.open("plain");
    await using a = await VerbsNode.open("a", { peers: { plain: plain.address } });
    const sent = upTo(10).map((number) => a.wire.send("plain", messageOf(64, number)));
    await within(Promise.all(sent), "the sends");
    expect(await numbers(plain.wire, 10)).toEqual(upTo(10));
    expect(a.wire.peers()).toEqual(["plain"]);
  });

  test("are received from beside others, by calls in order of asking", async () => {
    await using a = await VerbsNode.open("a");
    await using plain = await PlainNode.open("plain");
    await using b = await VerbsNode.open("b");
    await plain.wire.connect(a.address);
    await b.wire.connect(a.address);
    const waiting = [a.wire.recv(), a.wire.recv()];
    await plain.wire.send("a", messageOf(64, 1));
    const first = await within(waiting[0]!, "the first");
    expect([first.peer, await isSettled(waiting[1]!)]).toEqual(["plain", false]);
    await b.wire.send("a", messageOf(64, 2));
    expect((await within(waiting[1]!, "the second")).peer).toBe("b");
    for (let i = 0; i < 40; i++) {
      await plain.wire.send("a", messageOf(64, i));
      await b.wire.send("a", messageOf(64, 100 + i));
    }
    const all = await numbers(a.wire, 80);
    expect(all.filter((number) => number < 100)).toEqual(upTo(40));
    expect(all.filter((number) => number >= 100)).toEqual(upTo(40).map((number) => 100 + number));
  });

  test("one that comes back with RDMA is reached by it from then on", async () => {
    const plain = await PlainNode.open("x");
    await using a = await VerbsNode.open("a");
    await plain.wire.connect(a.address);
    await until(() => a.wire.peers().length === 1, "the peer");
    await a.wire.send("x", messageOf(64, 1));
    await numbers(plain.wire, 1);
    await plain.wire.close();
    await until(() => a.wire.peers().length === 0, "its end");
    await using x = await VerbsNode.open("x");
    await x.wire.connect(a.address);
    await until(() => a.wire.peers().length === 1, "the peer");
    await a.wire.send("x", messageOf(64, 2));
    expect(await numbers(x.wire, 1)).toEqual([2]);
    expect(a.double.connected.length).toBe(1);
    expect(a.kinds()).toEqual(["connected", "disconnected", "connected"]);
  });
});
