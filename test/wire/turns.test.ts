/**
 * When messages leave, and what else gets its turn meanwhile. Nothing here is measured in time: turns of the event loop are counted
 * against messages.
 */
import { describe, expect, test } from "bun:test";
import { messageOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import type { RawSocket } from "../support/raw.ts";
import { until, within } from "../support/wait.ts";

const KIB = 1024;
/** What one turn lets through is 8,192 messages, or 16 writes of the size of a flush; twice that is starvation. */
const MESSAGES_A_TURN = 2 * 8_192;
const FLUSHES_A_TURN = 2 * 16;

/** Counts the turns of the event loop until it is disposed of. */
class Turns implements Disposable {
  count = 0;
  private over = false;

  constructor() {
    const next = (): void => {
      this.count++;
      if (!this.over) setImmediate(next);
    };
    setImmediate(next);
  }

  [Symbol.dispose](): void {
    this.over = true;
  }
}

/** A node with bare peers `peer-0`, `peer-1`, ... that read all that comes. */
async function withPeers(net: Net, count: number): Promise<{ node: Node; raws: RawSocket[]; ids: string[] }> {
  const node = await net.node("node");
  const ids = Array.from({ length: count }, (_, i) => `peer-${i}`);
  const raws: RawSocket[] = [];
  for (const id of ids) raws.push(await net.rawPeer(node, id));
  return { node, raws, ids };
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const queued = (node: Node): number => node.transport.stats().queuedOutMessages;

describe("a loop that only sends, to many peers that keep up,", () => {
  /** Sends one message after the other to one peer after the other; then the turns seen are as many as they must be. */
  async function expectTurns(
    sizes: readonly number[],
    peers: number,
    count: number,
    least: number,
  ): Promise<void> {
    await using net = new Net();
    const { node, raws, ids } = await withPeers(net, peers);
    const messages = sizes.map((bytes) => messageOf(bytes));
    const sending = async (): Promise<void> => {
      for (let n = 0; n < count; n++)
        await node.transport.send(ids[n % peers]!, messages[n % messages.length]!);
    };
    using turns = new Turns();
    let timers = 0;
    const timer = setInterval(() => timers++, 0);
    try {
      await within(sending(), "the sends", 15_000);
      // As it stands in the very turn in which the last send resolved.
      expect(turns.count).toBeGreaterThanOrEqual(least);
      expect(timers).toBeGreaterThan(0);
      for (const raw of raws) expect(raw.received.length).toBeGreaterThan(0);
    } finally {
      clearInterval(timer);
    }
  }

  test("lets the event loop run: small messages", async () => {
    await expectTurns([64], 50, 60_000, Math.floor(60_000 / MESSAGES_A_TURN));
  });

  test("lets the event loop run: messages of a block's size", async () => {
    // Half as large as a flush; every peer gets few of them.
    await expectTurns([120 * KIB], 20, 240, Math.floor(240 / 3 / FLUSHES_A_TURN));
  });

  test("lets the event loop run: large messages", async () => {
    await expectTurns([130 * KIB], 20, 200, Math.floor(200 / FLUSHES_A_TURN));
  });

  test("lets the event loop run: large messages among small ones", async () => {
    await expectTurns([64, 130 * KIB, 20, 1_000], 20, 600, Math.floor(600 / 4 / FLUSHES_A_TURN));
  });
});

describe("trySend in a loop", () => {
  for (const peers of [1, 50]) {
    test(`says no after a turn's share, with ${peers} peers that keep up, and yes in the next turn`, async () => {
      await using net = new Net();
      const { node, ids } = await withPeers(net, peers);
      const message = messageOf(64);
      for (let round = 0; round < 4; round++) {
        let taken = 0;
        while (node.transport.trySend(ids[taken % peers]!, message)) {
          if (++taken > MESSAGES_A_TURN) throw new Error(`${taken} messages in one turn`);
        }
        expect(taken).toBeGreaterThan(1_000);
        await nextTurn();
        await until(() => queued(node) === 0, "everything to be out");
      }
    });
  }

  test("and send in turn share one allowance", async () => {
    await using net = new Net();
    const { node, ids } = await withPeers(net, 4);
    const message = messageOf(64);
    using turns = new Turns();
    const count = 60_000;
    for (let n = 0; n < count; n++) {
      const id = ids[n % 4]!;
      if (n % 3 === 0 || !node.transport.trySend(id, message)) await node.transport.send(id, message);
    }
    expect(turns.count).toBeGreaterThanOrEqual(Math.floor(count / MESSAGES_A_TURN));
  });
});

describe("a lone message", () => {
  for (const bytes of [16, 64, 10_000, 128 * KIB]) {
    test(`of ${bytes} bytes is with the kernel before send or trySend returns`, async () => {
      await using net = new Net();
      const { node, raws } = await withPeers(net, 1);
      const message = messageOf(bytes);
      for (let n = 1; n <= 6; n++) {
        if (n % 2 === 0) void node.transport.send("peer-0", message);
        else expect(node.transport.trySend("peer-0", message)).toBe(true);
        // The caller may work for as long as it likes now.
        expect(node.transport.stats()).toMatchObject({
          messagesOut: n,
          queuedOutMessages: 0,
          queuedOutBytes: 0,
        });
        await Bun.sleep(1);
      }
      await until(() => raws[0]?.received.length === 6 * (4 + bytes), "all of them to arrive");
    });
  }

  test("is with the kernel at once, too, after a burst, a wait for room, and a breather", async () => {
    await using net = new Net();
    const { node, ids } = await withPeers(net, 3);
    const message = messageOf(64);
    for (let round = 0; round < 3; round++) {
      for (let n = 0; n < 30_000; n++) await node.transport.send(ids[n % 3]!, message);
      await until(() => queued(node) === 0, "the burst to be out");
      await Bun.sleep(1);
      for (const id of ids) {
        void node.transport.send(id, message);
        expect(queued(node)).toBe(0);
        await Bun.sleep(1);
      }
    }
  });

  test("does not wait for another peer that reads nothing", async () => {
    await using net = new Net();
    const { node, raws } = await withPeers(net, 2);
    raws[0]?.pause();
    while (queued(node) === 0) {
      await node.send("peer-0", messageOf(60 * KIB));
      await Bun.sleep(0);
    }
    await Bun.sleep(1);
    const before = node.transport.stats();
    void node.transport.send("peer-1", messageOf(64));
    const { messagesOut, queuedOutMessages } = node.transport.stats();
    expect([messagesOut - before.messagesOut, queuedOutMessages - before.queuedOutMessages]).toEqual([1, 0]);
  });
});

describe("messages of one turn", () => {
  test("gather, and are out before any timer or immediate of the caller's", async () => {
    await using net = new Net();
    const { node, ids } = await withPeers(net, 3);
    for (let round = 0; round < 5; round++) {
      for (let n = 0; n < 90; n++) expect(node.transport.trySend(ids[n % 3]!, messageOf(64))).toBe(true);
      // All but the first.
      expect(queued(node)).toBe(89);
      const left = await new Promise<number>((resolve) => setImmediate(() => resolve(queued(node))));
      expect(left).toBe(0);
    }
  });

  test("are out when the caller only awaits things that are there already", async () => {
    await using net = new Net();
    const { node, ids } = await withPeers(net, 3);
    using turns = new Turns();
    for (let n = 0; n < 30; n++) await node.transport.send(ids[n % 3]!, messageOf(64));
    for (let n = 0; n < 20; n++) await null;
    expect([queued(node), turns.count]).toEqual([0, 0]);
  });
});
