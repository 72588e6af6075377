import { describe, expect, test } from "bun:test";
import { isMessage, messageOf, numberOf } from "../support/messages.ts";
import { Net } from "../support/nodes.ts";
import { isSettled, within } from "../support/wait.ts";

describe("messages of one peer", () => {
  test("arrive once each and in order: 20,000 from five peers at once", async () => {
    await using net = new Net();
    const hub = await net.node("hub");
    const peers = await Promise.all([0, 1, 2, 3, 4].map((i) => net.node(`peer-${i}`)));
    await Promise.all(peers.map((peer) => peer.transport.connect(hub.address)));
    const sending = peers.map(async (peer, i) => {
      for (let n = 0; n < 4_000; n++) {
        const bytes = n % 1_000 === 999 ? 150_000 : 20 + ((n * 31 + i) % 300);
        await peer.transport.send("hub", messageOf(bytes, n));
      }
    });
    const counts = await hub.takeNumbered(20_000, 20_000);
    await Promise.all(sending);
    expect([...counts.values()]).toEqual([4_000, 4_000, 4_000, 4_000, 4_000]);
    expect(hub.transport.stats()).toMatchObject({
      messagesIn: 20_000,
      queuedInMessages: 0,
      queuedInBytes: 0,
    });
    expect([hub, ...peers].flatMap((node) => node.troubles)).toEqual([]);
  });

  test("keep their order when the calls to send do not wait for each other", async () => {
    await using net = new Net({ limits: { sendQueueBytes: 300_000, recvQueueBytes: 100_000 } });
    const [a, b] = await net.pair();
    const sizes = [20, 200_000, 64, 30_000, 16_400, 131_073, 20];
    const sends = Array.from({ length: 300 }, (_, n) =>
      a.transport.send("b", messageOf(sizes[n % sizes.length] ?? 20, n)),
    );
    await b.takeNumbered(300);
    await within(Promise.all(sends), "all sends");
    expect(a.transport.stats().waitingSends).toBe(0);
  });
});

describe("recv", () => {
  test("calls that wait at once each get another message, in order of asking", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const calls = Array.from({ length: 50 }, () => b.transport.recv());
    expect(b.transport.stats().waitingRecvs).toBe(50);
    for (let n = 0; n < 60; n++) await a.send("b", messageOf(64, n));
    const envelopes = await within(Promise.all(calls), "50 messages");
    expect(envelopes.map((envelope) => numberOf(envelope.message))).toEqual([...Array(50).keys()]);
    for (const envelope of envelopes) envelope.release();
    for (let n = 50; n < 60; n++) expect(numberOf((await b.recv()).message)).toBe(n);
    expect(b.transport.stats().waitingRecvs).toBe(0);
  });

  test("gives a view that stays as it is until it is released, whatever comes after", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const sizes = [20, 100, 5_000, 70_000, 300_000];
    const sending = (async () => {
      for (let n = 0; n < 100; n++) await a.send("b", messageOf(sizes[n % 5] ?? 20, n));
    })();
    const envelopes = [];
    for (let n = 0; n < 100; n++) envelopes.push(await within(b.transport.recv(), `message ${n}`));
    await sending;
    for (const [n, envelope] of envelopes.entries()) expect(isMessage(envelope.message, n)).toBe(true);
    for (const envelope of envelopes) {
      const { message } = envelope;
      envelope.release();
      expect(() => envelope.message).toThrow("released");
      // A view that somebody kept is the old bytes or nothing, never another message.
      expect(message.length === 0 || numberOf(message) === envelopes.indexOf(envelope)).toBe(true);
    }
  });

  test("and tryRecv, trySend mix with the waiting kinds", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    expect(b.transport.tryRecv()).toBeNull();
    const waiting = b.transport.recv();
    expect(a.transport.trySend("b", messageOf(64, 0))).toBe(true);
    expect(numberOf((await within(waiting, "the first")).message)).toBe(0);
    const sending = [1, 2, 3].map((n) => a.transport.send("b", messageOf(64, n)));
    expect(a.transport.trySend("b", messageOf(64, 4))).toBe(true);
    await Promise.all(sending);
    for (let n = 1; n <= 4; n++) expect(numberOf((await b.recv()).message)).toBe(n);
    expect(() => a.transport.trySend("nobody", messageOf(64))).toThrow("no peer");
    expect(() => a.transport.trySend("b", new Uint8Array(64))).toThrow("ZAP message");
  });
});

describe("iteration", () => {
  test("gives every message and ends when the transport is closed", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const got: number[] = [];
    const loop = (async () => {
      for await (const envelope of b.transport) {
        got.push(numberOf(envelope.message));
        envelope.release();
      }
    })();
    await a.sendNumbered("b", 100);
    await a.close();
    await b.untilPeers(0);
    expect(await isSettled(loop)).toBe(false);
    await b.close();
    await within(loop, "the loop to end");
    expect(got).toEqual([...Array(100).keys()]);
  });

  test("may be left and taken up again without losing a message", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    await a.sendNumbered("b", 6);
    const got: number[] = [];
    for (let round = 0; round < 3; round++) {
      for await (const envelope of b.transport) {
        got.push(numberOf(envelope.message));
        envelope.release();
        if (got.length % 2 === 0) break;
      }
    }
    expect(got).toEqual([0, 1, 2, 3, 4, 5]);
    expect(b.transport.stats().waitingRecvs).toBe(0);
  });
});
