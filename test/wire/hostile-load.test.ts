import { describe, expect, test } from "bun:test";
import { frameOf, joined, messageOf, numberOf } from "../support/messages.ts";
import { Net, OVER_SLABS, type Node } from "../support/nodes.ts";
import { RawSocket } from "../support/raw.ts";
import { failureOf, isSettled, within } from "../support/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** What one read of a socket can bring beyond a limit. */
const CHUNK_BYTES = 512 * KIB;

async function flood(net: Net, node: Node, count: number): Promise<RawSocket[]> {
  const opening = Array.from({ length: count }, () => net.raw(node).catch(() => null));
  return (await Promise.all(opening)).filter((socket) => socket !== null);
}

/** The largest value that `read` shows until `done`. */
async function peakOf(read: () => number, done: Promise<unknown>): Promise<number> {
  let peak = 0;
  let over = false;
  const end = (): void => void (over = true);
  done.then(end, end);
  while (!over) {
    peak = Math.max(peak, read());
    await Bun.sleep(1);
  }
  return peak;
}

describe("a flood of connections that say nothing", () => {
  test("pushes out the oldest of its own kind, and a peer still gets in", async () => {
    await using net = new Net();
    const node = await net.node("node", { limits: { connections: 200, handshakes: 50 } });
    const friend = await net.node("old-friend");
    await friend.transport.connect(node.address);
    let most = 0;
    for (let wave = 0; wave < 5; wave++) {
      await flood(net, node, 100);
      const { handshakes, connections } = node.transport.stats();
      most = Math.max(most, handshakes);
      expect(handshakes).toBeLessThanOrEqual(50);
      expect(connections).toBe(1 + wave);
      const peer = await net.node(`peer-${wave}`);
      expect(await within(peer.transport.connect(node.address), "a peer to get in", 2_000)).toBe("node");
      await peer.send("node", messageOf(64, wave));
      expect(numberOf((await node.recv()).message)).toBe(wave);
    }
    expect(most).toBeGreaterThan(40);
    expect(node.transport.stats().drops["handshakes"]).toBeGreaterThan(300);
    await friend.send("node", messageOf(64, 9));
    expect((await node.recv()).peer).toBe("old-friend");
  });

  test("cannot take all the connections there are, whatever the two limits", async () => {
    await using net = new Net();
    // Fewer connections than handshakes: easily said by somebody who sets one limit and leaves the other.
    const node = await net.node("node", { limits: { connections: 20 } });
    const friend = await net.node("old-friend");
    await friend.transport.connect(node.address);
    await flood(net, node, 60);
    expect(node.transport.stats().handshakes).toBeLessThanOrEqual(20);
    const peer = await net.node("peer");
    expect(await within(peer.transport.connect(node.address), "a peer to get in", 2_000)).toBe("node");
    expect(node.transport.peers().sort()).toEqual(["old-friend", "peer"]);
  });

  test("does not stop the node from dialling out", async () => {
    await using net = new Net();
    const node = await net.node("node", { limits: { connections: 20, handshakes: 10 } });
    await flood(net, node, 60);
    const peer = await net.node("peer");
    expect(await within(node.transport.connect(peer.address), "the node to dial", 2_000)).toBe("peer");
  });
});

describe("limits.connections", () => {
  test("turns away the next, on both sides, and frees a place when one goes", async () => {
    await using net = new Net();
    const node = await net.node("node", { limits: { connections: 3 } });
    const others = await Promise.all([0, 1, 2, 3].map((i) => net.node(`peer-${i}`)));
    for (const other of others.slice(0, 3)) await other.transport.connect(node.address);
    const last = others[3] as Node;
    expect((await failureOf(last.transport.connect(node.address))).code).toBe("ERR_ZAP_HANDSHAKE");
    expect(node.transport.stats()).toMatchObject({ connections: 3, drops: { connections: 1 } });
    const error = await failureOf(node.transport.connect(last.address));
    expect([error.code, error.message]).toEqual([
      "ERR_ZAP_LIMIT",
      expect.stringContaining("limits.connections"),
    ]);
    await others[0]?.close();
    await node.untilPeers(2);
    expect(await last.transport.connect(node.address)).toBe("node");
  });
});

describe("a peer that never reads", () => {
  test("costs the sender its queue and no more, and other peers nothing", async () => {
    await using net = new Net();
    const limits = { sendQueueBytes: 256 * KIB, keepaliveMillis: 50 };
    const node = await net.node("node", { limits });
    const other = await net.node("other");
    await other.transport.connect(node.address);
    const raw = await net.rawPeer(node, "stuck");
    raw.pause();
    const sends = Array.from({ length: 400 }, (_, n) => node.transport.send("stuck", messageOf(50 * KIB, n)));
    for (const send of sends) send.catch(() => {});
    await Bun.sleep(50);
    const { queuedOutBytes, waitingSends } = node.transport.stats();
    expect(queuedOutBytes).toBeGreaterThan(0);
    expect(queuedOutBytes).toBeLessThanOrEqual(256 * KIB + 4 * 10);
    expect(waitingSends).toBeGreaterThan(100);
    for (let n = 0; n < 200; n++) {
      await node.send("other", messageOf(10 * KIB, n));
      expect(numberOf((await other.recv()).message)).toBe(n);
    }
    raw.resume();
    for (let n = 0; n < 400; n++) expect(numberOf(await raw.message())).toBe(n);
    await within(Promise.all(sends), "all sends");
  }, 10_000);

  test("and holds more than half of the node's whole budget does not keep others waiting for ever", async () => {
    await using net = new Net();
    const limits = { sendQueueBytes: 700 * KIB, totalQueueBytes: MIB };
    const node = await net.node("node", { limits });
    const stuck = await net.rawPeer(node, "stuck");
    const [first, second] = [await net.rawPeer(node, "first"), await net.rawPeer(node, "second")];
    stuck.pause();
    first.pause();
    const fill = async (peer: string, upTo: number): Promise<void> => {
      for (;;) {
        const sending = node.transport.send(peer, messageOf(20 * KIB));
        sending.catch(() => {});
        if (node.transport.stats().queuedOutBytes >= upTo || !(await isSettled(sending))) return;
      }
    };
    await fill("stuck", 650 * KIB);
    await fill("first", 950 * KIB);
    // The budget is spent, but `second` has nothing queued: it may always queue one message.
    await within(
      node.transport.send("second", messageOf(100 * KIB, 5)),
      "second's message to be handed over",
      1_000,
    );
    expect(numberOf(await second.message(1_000))).toBe(5);
  });
});

describe("peers that send more than anybody takes", () => {
  test("are read up to the limits, those included that come when they are reached", async () => {
    await using net = new Net();
    const limits = { recvQueueBytes: 256 * KIB, totalQueueBytes: MIB };
    const node = await net.node("node", { limits });
    const bytes = joined(...Array.from({ length: 100 }, (_, n) => frameOf(messageOf(20 * KIB, n))));
    const peers: RawSocket[] = [];
    const filled = (): number => node.transport.stats().queuedInBytes;
    for (let i = 0; i < 16; i++) {
      const raw = await net.rawPeer(node, `peer-${i}`);
      peers.push(raw);
      raw.write(bytes);
      await Bun.sleep(5);
    }
    await Bun.sleep(50);
    expect(filled()).toBeGreaterThan(MIB / 2);
    expect(filled()).toBeLessThanOrEqual(MIB + CHUNK_BYTES);
    const next = new Map<string, number>();
    for (let i = 0; i < 16 * 100; i++) {
      const { peer, message } = await node.recv();
      expect(numberOf(message)).toBe(next.get(peer) ?? 0);
      next.set(peer, (next.get(peer) ?? 0) + 1);
      if (i % 100 === 0) expect(filled()).toBeLessThanOrEqual(MIB + CHUNK_BYTES);
    }
    expect([...next.values()]).toEqual(Array.from({ length: 16 }, () => 100));
    expect(filled()).toBe(0);
  }, 10_000);

  test("one tiny message in each packet are charged for what they really cost", async () => {
    await using net = new Net();
    const node = await net.node("node", { limits: { recvQueueBytes: 32 * KIB } });
    const raw = await net.rawPeer(node, "trickle");
    const frame = frameOf(messageOf(20));
    for (let i = 0; i < 3_000; i++) {
      raw.write(frame);
      await Bun.sleep(0);
    }
    await Bun.sleep(20);
    const { queuedInMessages, queuedInBytes } = node.transport.stats();
    // Each is a buffer, a batch and a place in a queue: some hundred bytes, whatever it carries. In a slab they may share all that.
    expect(queuedInBytes / queuedInMessages).toBeGreaterThanOrEqual(OVER_SLABS ? 20 : 64);
    expect(queuedInMessages).toBeLessThan(OVER_SLABS ? 3_000 : 1_000);
  });
});

describe("many peers that announce large frames at once", () => {
  const FRAME = 600 * KIB;
  const limits = { totalQueueBytes: MIB, recvQueueBytes: MIB, frameMillis: 3_000 };

  test("are all served in the end, and memory stays within the limit", async () => {
    await using net = new Net();
    const node = await net.node("node", { limits });
    const count = 30;
    const peers = await Promise.all(Array.from({ length: count }, (_, i) => net.rawPeer(node, `peer-${i}`)));
    const frame = frameOf(messageOf(FRAME, 7));
    // The first half of every frame, then the second, so that all are under way at the same time.
    for (const raw of peers) raw.write(frame.subarray(0, 100 * KIB));
    await Bun.sleep(20);
    for (const raw of peers) raw.write(frame.subarray(100 * KIB));
    const senders = new Set<string>();
    const taking = (async () => {
      while (senders.size < count) {
        const { peer, message } = await node.recv();
        expect([message.length, numberOf(message)]).toEqual([FRAME, 7]);
        senders.add(peer);
      }
    })();
    const peak = await peakOf(
      () => node.transport.stats().queuedInBytes,
      within(taking, "all frames", 8_000),
    );
    await taking;
    expect(peak).toBeLessThanOrEqual(MIB + CHUNK_BYTES);
    expect(node.troubles).toEqual([]);
    // All reservations are given back: a further round works as well as the first.
    for (const raw of peers.slice(0, 5)) raw.write(frame);
    for (let i = 0; i < 5; i++) expect((await node.recv()).message.length).toBe(FRAME);
  }, 12_000);

  test("and send all but the end of them cost no more memory than the limit", async () => {
    await using net = new Net();
    const large = { totalQueueBytes: 8 * MIB, recvQueueBytes: 8 * MIB, frameMillis: 10_000 };
    const node = await net.node("node", { limits: large });
    const peers = await Promise.all(Array.from({ length: 40 }, (_, i) => net.rawPeer(node, `peer-${i}`)));
    const frame = frameOf(messageOf(4 * MIB, 7));
    Bun.gc(true);
    const before = process.memoryUsage.rss();
    for (const raw of peers) raw.write(frame.subarray(0, -1));
    let peak = 0;
    for (let i = 0; i < 30; i++) {
      await Bun.sleep(10);
      peak = Math.max(peak, process.memoryUsage.rss() - before);
    }
    // 160 MiB are on their way; what the kernel holds of them is not ours.
    expect(peak / MIB).toBeLessThan(64);
    for (const raw of peers) raw.write(frame.subarray(-1));
    for (let i = 0; i < 40; i++) expect((await node.recv()).message.length).toBe(4 * MIB);
    expect(node.troubles).toEqual([]);
  }, 12_000);

  test("and never send them hold up the others for limits.frameMillis each, no longer", async () => {
    await using net = new Net();
    const node = await net.node("node", { limits: { ...limits, frameMillis: 300 } });
    const liars = await Promise.all([0, 1, 2, 3].map((i) => net.rawPeer(node, `liar-${i}`)));
    const honest = await net.rawPeer(node, "honest");
    const frame = frameOf(messageOf(FRAME, 7));
    for (const raw of liars) raw.write(frame.subarray(0, 80 * KIB));
    await Bun.sleep(20);
    honest.write(frame);
    const { peer, message } = await node.recv(3_000);
    expect([peer, message.length]).toEqual(["honest", FRAME]);
    for (let i = 0; i < 4; i++) await node.untilError("ERR_ZAP_CONNECTION_LOST", `liar-${i}`);
    expect(node.transport.stats()).toMatchObject({ connections: 1, queuedInBytes: 0 });
  });

  test("and then vanish give back what was held for them", async () => {
    await using net = new Net();
    const node = await net.node("node", { limits });
    const frame = frameOf(messageOf(FRAME, 7));
    for (let round = 0; round < 5; round++) {
      const peers = await Promise.all([0, 1, 2, 3].map((i) => net.rawPeer(node, `peer-${round}-${i}`)));
      for (const raw of peers) raw.write(frame.subarray(0, 200 * KIB));
      await Bun.sleep(10);
      for (const raw of peers) raw.terminate();
      await node.untilPeers(0);
    }
    const honest = await net.rawPeer(node, "honest");
    honest.write(frame, frame, frame);
    for (let i = 0; i < 3; i++) expect((await node.recv(2_000)).message.length).toBe(FRAME);
  });
});
