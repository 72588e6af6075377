/** When memory is short: nobody is stuck for ever, nobody hoards, and what was delivered is known to be. */
import { describe, expect, test } from "bun:test";
import type { Buffer, SlabBuffer } from "../../lib/memory/index.ts";
import type { Envelope, Transport } from "../../lib/transport/index.ts";
import { frameOf, isMessage, messageOf } from "../support/messages.ts";
import { noNative } from "../support/native.ts";
import { isSettled, until, within } from "../support/wait.ts";
import { MIB, nextWithin, poolOf, Slabs, SMALL } from "./slabs-kit.ts";

const KIB = 1024;

/** Takes all that a pool has, in pieces of 64 KiB. */
function takeAll(transport: Transport): Buffer[] {
  const all: Buffer[] = [];
  for (let one = transport.tryAllocBuffer(64 * KIB); one !== null; one = transport.tryAllocBuffer(64 * KIB))
    all.push(one);
  return all;
}

describe.skipIf(noNative)("connections that wait for memory", () => {
  test("all go on when there is some again, and keep none that they have no use for", async () => {
    await using slabs = new Slabs();
    const limits = { frameBytes: 64 * KIB, connections: 32, handshakes: 32 };
    const node = await slabs.open("node", { limits }, { poolBytes: 8 * MIB, debug: false });
    const peers = await Promise.all(Array.from({ length: 20 }, (_, i) => slabs.raw(node, `peer-${i}`)));
    const held: (Buffer | Envelope)[] = takeAll(node);
    let sent = 0;
    for (let round = 0; poolOf(node).waiting < peers.length && round < 500; round++) {
      for (const peer of peers) {
        peer.write(frameOf(messageOf(500, 1)));
        sent++;
      }
      await Bun.sleep(2);
      for (let one = node.tryRecv(); one !== null; one = node.tryRecv()) held.push(one);
    }
    expect(poolOf(node).waiting).toBeGreaterThan(0);
    let received = held.filter((one) => "peer" in one).length;
    for (const one of held) one.release();
    for (; received < sent; received++)
      (await within(node.recv(), `message ${received} of ${sent}`)).release();
    // One slab is left, which all of them read into.
    await until(() => poolOf(node).stats().usedBytes <= MIB, "the rest to be given back");
    expect(poolOf(node).waiting).toBe(0);
  }, 20_000);

  test("in the middle of large frames hold nothing that keeps others from going on", async () => {
    await using slabs = new Slabs();
    // The least that is possible with this limit.
    const limits = { frameBytes: 10 * MIB };
    const node = await slabs.open("node", { limits }, { poolBytes: 24 * MIB, debug: false });
    const peers = await Promise.all(Array.from({ length: 12 }, (_, i) => slabs.raw(node, `peer-${i}`)));
    const regions = new Map<number, Buffer[]>();
    for (const one of takeAll(node)) {
      const region = (one as SlabBuffer).address >> 20;
      regions.set(region, [...(regions.get(region) ?? []), one]);
    }
    const large = frameOf(messageOf(10 * MIB, 5));
    const places = [...regions.values()];
    for (const [i, peer] of peers.entries()) {
      peer.write(large.slice(0, 100_000));
      await Bun.sleep(5);
      places[i % places.length]!.shift()?.release();
      await Bun.sleep(5);
    }
    for (const place of places) for (const one of place) one.release();
    for (const peer of peers) peer.write(large.slice(100_000));
    for (let i = 0; i < peers.length; i++) {
      const envelope = await within(node.recv(), `frame ${i}`, 10_000);
      expect(isMessage(envelope.message, 5)).toBe(true);
      envelope.release();
    }
  }, 30_000);

  test("queue behind a buffer that the program wants, and that it gets: the wire makes way", async () => {
    await using slabs = new Slabs();
    const node = await slabs.open("node", { limits: SMALL }, { poolBytes: 32 * MIB, debug: false });
    const peer = await slabs.raw(node, "peer");
    peer.write(frameOf(messageOf(100, 1)));
    const first = await within(node.recv(), "the first message");
    const asking = node.allocBuffer(31.5 * MIB);
    await Bun.sleep(20);
    expect(await isSettled(asking)).toBe(false);
    first.release();
    const large = await within(asking, "the buffer");
    for (let n = 0; n < 100; n++) peer.write(frameOf(messageOf(70_000, n)));
    expect(await nextWithin(node, 50)).toBeNull();
    large.release();
    for (let n = 0; n < 100; n++) {
      const envelope = await within(node.recv(), `message ${n}`);
      expect(isMessage(envelope.message, n)).toBe(true);
      envelope.release();
    }
  }, 20_000);
});

describe.skipIf(noNative)("close() with the pool full of what the program holds", () => {
  test("still hears what has been delivered, and does not wait for memory", async () => {
    await using slabs = new Slabs();
    const a = await slabs.open("a", { limits: SMALL });
    const b = await slabs.open(
      "b",
      { limits: { ...SMALL, closeMillis: 4_000 } },
      { poolBytes: 8 * MIB, debug: false },
    );
    await within(a.connect(b.addresses[0]!), "connect");
    const sending = (async () => {
      for (let n = 0; n < 40; n++) await a.send("b", messageOf(700_000, n));
    })().catch(() => {});
    const held: Envelope[] = [];
    for (let one = await nextWithin(b, 200); one !== null; one = await nextWithin(b, 200)) held.push(one);
    expect(poolOf(b).waiting).toBeGreaterThan(0);
    for (let n = 0; n < 20; n++) await b.send("a", messageOf(1_000, n));
    for (let n = 0; n < 20; n++) (await within(a.recv(), `answer ${n}`)).release();
    const before = performance.now();
    const report = await within(b.close(), "close");
    expect(report).toMatchObject({ undelivered: 0, buffers: held.length });
    expect(performance.now() - before).toBeLessThan(3_000);
    for (const [n, envelope] of held.entries()) {
      expect(isMessage(envelope.message, n)).toBe(true);
      envelope.release();
    }
    await a.close();
    await sending;
  }, 20_000);
});
