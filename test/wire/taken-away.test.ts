/**
 * A message whose memory is taken away (transferred, or shrunk) before its `send` has settled. It is its caller's mistake, and its
 * caller alone hears of it.
 */
import { describe, expect, test } from "bun:test";
import type { Limits } from "../../lib/wire/index.ts";
import { helloOf, isMessage, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener, type RawSocket } from "../support/raw.ts";
import { failureOf, until, within } from "../support/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** More than the kernel takes for a peer that does not read. */
const LARGE = 12 * MIB;
const LIMITS = {
  frameBytes: 64 * MIB,
  sendQueueBytes: 64 * KIB,
  reconnectMinMillis: 10,
  reconnectMaxMillis: 50,
};

interface Lent {
  readonly message: Uint8Array;
  takeAway(): void;
}

function resizable(bytes: number, number: number, tracking: boolean): Uint8Array<ArrayBuffer> {
  const buffer = new ArrayBuffer(bytes, { maxByteLength: 2 * bytes });
  const view = tracking ? new Uint8Array(buffer) : new Uint8Array(buffer, 0, bytes);
  view.set(messageOf(bytes, number));
  return view;
}

/** Ways to take the memory of `messageOf(bytes, number)` away. */
const WAYS: Record<string, (bytes: number, number: number) => Lent> = {
  "transferred to a worker": (bytes, number) => {
    const message = messageOf(bytes, number);
    return {
      message,
      takeAway: () => void structuredClone(0, { transfer: [message.buffer as ArrayBuffer] }),
    };
  },
  "transferred to another ArrayBuffer, as a Buffer": (bytes, number) => {
    const message = Buffer.from(messageOf(bytes, number).buffer as ArrayBuffer);
    return { message, takeAway: () => void message.buffer.transfer() };
  },
  "shrunk to nothing": (bytes, number) => {
    const message = resizable(bytes, number, true);
    return { message, takeAway: () => message.buffer.resize(0) };
  },
  "shrunk by one byte, under a view that follows": (bytes, number) => {
    const message = resizable(bytes, number, true);
    return { message, takeAway: () => message.buffer.resize(bytes - 1) };
  },
  "shrunk by one byte, under a view that does not": (bytes, number) => {
    const message = resizable(bytes, number, false);
    return { message, takeAway: () => message.buffer.resize(bytes - 1) };
  },
};

async function expectTakenAway(sending: Promise<void>): Promise<void> {
  const error = await failureOf(sending);
  expect([error.name, error.code]).toEqual(["MessageError", "ERR_ZAP_MESSAGE_SHORT"]);
}

/** A node that keeps dialling a bare peer, `far`, which is connected and reads nothing. */
async function stuckPeer(
  net: Net,
  limits: Partial<Limits> = LIMITS,
): Promise<{ node: Node; listener: RawListener; raw: RawSocket }> {
  const listener = new RawListener();
  const node = await net.node("node", { limits, peers: { far: listener.address } });
  const raw = await welcome(listener, 0);
  raw.pause();
  await node.untilPeers(1);
  return { node, listener, raw };
}

async function welcome(listener: RawListener, index: number): Promise<RawSocket> {
  const raw = await listener.socket(index);
  raw.write(helloOf("far"));
  await raw.frame();
  return raw;
}

/** Nothing is left of what was taken away, and the peer is an ordinary one. */
async function expectUsable(node: Node, raw: RawSocket): Promise<void> {
  await node.send("far", messageOf(300 * KIB, 77));
  const got = await raw.message();
  expect([numberOf(got), isMessage(got, 77)]).toEqual([77, true]);
  await until(() => node.transport.stats().queuedOutBytes === 0, "nothing to be queued");
  expect(node.transport.stats()).toMatchObject({
    ...{ connections: 1, queuedOutMessages: 0, waitingSends: 0, undelivered: 0 },
  });
  raw.shutdown();
  expect(await node.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
}

describe("a message whose memory is taken away", () => {
  for (const [way, lend] of Object.entries(WAYS)) {
    for (const bytes of [1_000, 300 * KIB]) {
      test(`(${way}, ${bytes} bytes) while its send waits for room fails alone`, async () => {
        await using net = new Net();
        const { node, listener, raw } = await stuckPeer(net);
        using _ = listener;
        const large = node.transport.send("far", messageOf(LARGE, 0));
        const lent = lend(bytes, 1);
        const faulty = node.transport.send("far", lent.message);
        const innocent = node.transport.send("far", messageOf(1_000, 2));
        faulty.catch(() => {});
        expect(node.transport.stats().waitingSends).toBe(2);
        lent.takeAway();
        raw.resume();
        await expectTakenAway(faulty);
        await within(Promise.all([large, innocent]), "the others");
        expect([numberOf(await raw.message()), numberOf(await raw.message())]).toEqual([0, 2]);
        expect(node.troubles).toEqual([]);
        await expectUsable(node, raw);
      });
    }

    test(`(${way}) while its send waits for a connection fails alone`, async () => {
      await using net = new Net();
      using listener = new RawListener();
      const node = await net.node("node", { limits: LIMITS, peers: { far: listener.address } });
      const all = [1_000, 300 * KIB].map((bytes, n) => lend(bytes, n));
      const faulty = all.map(({ message }) => node.transport.send("far", message));
      const innocent = node.transport.send("far", messageOf(64, 3));
      for (const { takeAway } of all) takeAway();
      for (const one of faulty) one.catch(() => {});
      const raw = await welcome(listener, 0);
      for (const one of faulty) await expectTakenAway(one);
      await within(innocent, "the other");
      expect(numberOf(await raw.message())).toBe(3);
      expect(node.troubles).toEqual([]);
      await expectUsable(node, raw);
    });

    test(`(${way}) while it is half written cuts that connection; the others arrive on the next`, async () => {
      await using net = new Net();
      const { node, listener, raw } = await stuckPeer(net);
      using _ = listener;
      const lent = lend(LARGE, 0);
      const faulty = node.transport.send("far", lent.message);
      const innocent = [1, 2, 3].map((n) => node.transport.send("far", messageOf(n * 70 * KIB, n)));
      faulty.catch(() => {});
      await node.untilHalfWritten(LARGE);
      lent.takeAway();
      raw.resume();
      await expectTakenAway(faulty);
      const next = await welcome(listener, 1);
      for (const n of [1, 2, 3]) expect(isMessage(await next.message(), n)).toBe(true);
      await within(Promise.all(innocent), "the others");
      // The far end sees a frame that breaks off, and not a byte of anything else in its place.
      expect(raw.received.length).toBeLessThan(LARGE);
      expect(node.troubles.join()).toContain("taken away");
      await expectUsable(node, next);
    });

    test(`(${way}) while it is half written and then the connection is lost: the same`, async () => {
      await using net = new Net();
      const { node, listener, raw } = await stuckPeer(net);
      using _ = listener;
      const lent = lend(LARGE, 0);
      const faulty = node.transport.send("far", lent.message);
      const innocent = node.transport.send("far", messageOf(70 * KIB, 1));
      faulty.catch(() => {});
      await node.untilHalfWritten(LARGE);
      lent.takeAway();
      raw.terminate();
      await expectTakenAway(faulty);
      const next = await welcome(listener, 1);
      expect(isMessage(await next.message(), 1)).toBe(true);
      await within(innocent, "the other");
      await expectUsable(node, next);
    });

    test(`(${way}) while it is half written and then the peer half-closes: the same`, async () => {
      await using net = new Net();
      const { node, listener, raw } = await stuckPeer(net);
      using _ = listener;
      const lent = lend(LARGE, 0);
      const faulty = node.transport.send("far", lent.message);
      const innocent = node.transport.send("far", messageOf(70 * KIB, 1));
      faulty.catch(() => {});
      await node.untilHalfWritten(LARGE);
      lent.takeAway();
      raw.shutdown();
      await expectTakenAway(faulty);
      const next = await welcome(listener, 1);
      expect(isMessage(await next.message(), 1)).toBe(true);
      expect(node.troubles.join()).toContain("taken away");
      await within(innocent, "the other");
      await expectUsable(node, next);
    });

    test(`(${way}) while it is queued and then its send is aborted leaves nothing behind`, async () => {
      await using net = new Net();
      const { node, listener, raw } = await stuckPeer(net, { ...LIMITS, sendQueueBytes: MIB });
      using _ = listener;
      let number = 0;
      for (; node.transport.stats().queuedOutBytes < 60 * KIB; number++) {
        await node.send("far", messageOf(30 * KIB, number));
        await Bun.sleep(0);
      }
      const abort = new AbortController();
      const lent = lend(140 * KIB, 0);
      const faulty = node.transport.send("far", lent.message, { signal: abort.signal });
      faulty.catch(() => {});
      await node.send("far", messageOf(64, number++));
      expect(node.transport.stats()).toMatchObject({ waitingSends: 0 });
      lent.takeAway();
      abort.abort("never mind");
      expect((await failureOf(faulty)).code).toMatch(/ERR_ZAP_(ABORTED|MESSAGE_SHORT)/);
      raw.resume();
      for (let n = 0; n < number; n++) expect(numberOf(await raw.message())).toBe(n);
      await expectUsable(node, raw);
    });

    test(`(${way}) while it is half written and then its send is aborted never resolves`, async () => {
      await using net = new Net();
      const { node, listener, raw } = await stuckPeer(net);
      using _ = listener;
      const abort = new AbortController();
      const lent = lend(LARGE, 0);
      const faulty = node.transport.send("far", lent.message, { signal: abort.signal });
      const innocent = node.transport.send("far", messageOf(70 * KIB, 1));
      faulty.catch(() => {});
      await node.untilHalfWritten(LARGE);
      lent.takeAway();
      abort.abort("never mind");
      raw.resume();
      // Its rest is no more: to say that it was handed over would be a lie.
      const error = await failureOf(faulty);
      expect(error.code).toMatch(/ERR_ZAP_(ABORTED|MESSAGE_SHORT)/);
      const next = await welcome(listener, 1);
      expect(isMessage(await next.message(), 1)).toBe(true);
      await within(innocent, "the other");
      await expectUsable(node, next);
    });
  }

  test("by growing it, under a view that follows, is sent as it was or not at all", async () => {
    await using net = new Net();
    const { node, listener, raw } = await stuckPeer(net);
    using _ = listener;
    const begun = resizable(LARGE, 0, true);
    const waits = resizable(1_000, 1, true);
    const sends = [begun, waits].map((message) => node.transport.send("far", message));
    sends[1]?.catch(() => {});
    await node.untilHalfWritten(LARGE);
    begun.buffer.resize(LARGE + 1_000);
    waits.buffer.resize(1_500);
    raw.resume();
    await within(sends[0] as Promise<void>, "the one that was begun");
    expect(isMessage(await raw.message(), 0)).toBe(true);
    await expectTakenAway(sends[1] as Promise<void>);
    await expectUsable(node, raw);
  });
});
