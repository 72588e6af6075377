/** What a far end may say on a link, by hand, over a bare socket: all of it before, while and after a queue pair comes up. */
import { describe, expect, test } from "bun:test";
import { GPUDIRECT_OFFER, GPUDIRECT_OFFER_MAGIC } from "../../../lib/ffi/index.ts";
import { readSaid, sayOffer, sayReady } from "../../../lib/wire/verbs/said.ts";
import { offerFault } from "../../../lib/wire/verbs/structures.ts";
import { frameOf, helloOf, messageOf } from "../../support/messages.ts";
import { RawSocket } from "../../support/raw.ts";
import { failureOf, isSettled, until, within } from "../../support/wait.ts";
import { numbers, VerbsNode } from "./node.ts";

/** In a hello: the speaker can do RDMA. */
const VERBS = 3;
const HELLO_FRAME_BYTES = 84;
const OFFER_FRAME_BYTES = 4 + 16 + 8 + GPUDIRECT_OFFER.bytes;

type Field = keyof typeof GPUDIRECT_OFFER.at;

const GOOD: Readonly<Partial<Record<Field, number>>> = {
  magic: GPUDIRECT_OFFER_MAGIC,
  queue_pair: 0xab_cdef,
  sequence: 6,
  mtu: 1_024,
  ethernet: 1,
  eager_bytes: 8_192,
  receives: 64,
  message_bytes: 2 ** 20,
  reads: 4,
};

function offerWith(changes: Readonly<Partial<Record<Field, number>>> = {}): Uint8Array {
  const bytes = new Uint8Array(GPUDIRECT_OFFER.bytes);
  const view = new DataView(bytes.buffer);
  for (const [name, value] of Object.entries({ ...GOOD, ...changes }))
    view.setUint32(GPUDIRECT_OFFER.at[name as Field], value, true);
  return bytes;
}

/** A message that is said on a link, with one of its words changed. */
function changed(message: Uint8Array, at: number, value: number): Uint8Array {
  const copy = message.slice();
  new DataView(copy.buffer).setUint32(at, value, true);
  return copy;
}

/** A far end that says that it can do RDMA, once the node has made its offer. */
async function liarTo(node: VerbsNode, id = "liar"): Promise<RawSocket> {
  const raw = await RawSocket.connect(node.address);
  raw.write(helloOf(id, VERBS));
  await until(
    () => raw.received.length >= HELLO_FRAME_BYTES + OFFER_FRAME_BYTES,
    "the node's hello and offer",
  );
  return raw;
}

/** Nothing of it is left, and others are served. */
async function expectNothingLeft(node: VerbsNode): Promise<void> {
  await until(() => node.double.flows.size === 0, "the end of the queue pair");
  expect(node.wire.peers()).toEqual([]);
  expect(node.wire.stats()).toMatchObject({
    connections: 0,
    handshakes: 0,
    waitingSends: 0,
    queuedOutMessages: 0,
    queuedInMessages: 0,
  });
  await using honest = await VerbsNode.open("honest");
  await within(honest.wire.connect(node.address), "connect");
  await honest.wire.send(node.wire.nodeId, messageOf(64, 7));
  expect(await numbers(node.wire, 1)).toEqual([7]);
}

describe("an offer", () => {
  const ranges: readonly (readonly [Field, number, number])[] = [
    ["queue_pair", 1, 2 ** 24 - 1],
    ["sequence", 0, 2 ** 24 - 1],
    ["lid", 0, 2 ** 16 - 1],
    ["mtu", 256, 4_096],
    ["ethernet", 0, 1],
    ["eager_bytes", 256, 2 ** 20],
    ["receives", 16, 65_536],
    ["message_bytes", 16, 2 ** 30],
    ["reads", 1, 2 ** 16 - 1],
  ];
  for (const [field, least, most] of ranges) {
    test(`has a ${field} from ${least} to ${most}, and no other`, () => {
      for (const value of [least, most]) expect(offerFault(offerWith({ [field]: value }))).toBeNull();
      const others = [least - 1, most + 1, 2 ** 31, 2 ** 32 - 1].filter((value) => value >= 0);
      for (const value of others)
        expect(offerFault(offerWith({ [field]: value }))).toBe(
          `the offer's ${field} is ${value}, and not between ${least} and ${most}`,
        );
    });
  }

  test("is as long as one, and of this version", () => {
    expect(offerFault(offerWith())).toBeNull();
    for (const length of [0, 1, 79, 81])
      expect(offerFault(new Uint8Array(length))).toBe(`an offer has 80 bytes, and this one ${length}`);
    for (const magic of [0, 2 ** 32 - 1, GPUDIRECT_OFFER_MAGIC + 1])
      expect(offerFault(offerWith({ magic }))).toBe("the offer is of another version, or none");
  });
});

describe("what is said on a link", () => {
  test("is an offer or that one is ready", () => {
    const offer = offerWith();
    expect(readSaid(sayOffer(offer))).toEqual({ kind: "offer", offer });
    expect(readSaid(sayReady())).toEqual({ kind: "ready" });
  });

  test("or nothing, in words", () => {
    const offer = sayOffer(offerWith());
    const ready = sayReady();
    for (const kind of [0, 3, 2 ** 32 - 1])
      expect(readSaid(changed(ready, 16, kind))).toBe(`kind ${kind} is not said on a link`);
    for (const version of [0, 2, 2 ** 32 - 1])
      expect(readSaid(changed(offer, 20, version))).toBe(
        `it speaks version ${version} of what is said on a link, and we 1`,
      );
    for (const root of [0, 15, 17, 24, 2 ** 32 - 1])
      expect(readSaid(changed(offer, 8, root))).toBe("104 bytes on a link that say nothing");
    for (const length of [16, 20, 23])
      expect(readSaid(offer.subarray(0, length))).toBe(`${length} bytes on a link that say nothing`);
    expect(readSaid(changed(offer, 16, 2))).toBe('80 bytes behind "ready"');
    expect(readSaid(changed(ready, 16, 1))).toBe("an offer has 80 bytes, and this one 0");
  });

  test("is read from a copy: what comes next in the same memory does not change it", () => {
    const message = sayOffer(offerWith());
    const said = readSaid(message);
    message.fill(0xff);
    expect(said).toEqual({ kind: "offer", offer: offerWith() });
  });

  test("whatever its bytes are, is read without an error", () => {
    let x = 1;
    const next = (): number => (x = (Math.imul(x, 1_103_515_245) + 12_345) >>> 0) >>> 16;
    const good = sayOffer(offerWith());
    for (let round = 0; round < 3_000; round++) {
      const message = good.slice(0, 16 + (next() % (good.length - 15)));
      for (let i = next() % 6; i > 0; i--) message[next() % message.length] = next();
      const said = readSaid(message);
      if (typeof said === "string") expect(said).not.toBe("");
      else if (said.kind === "offer") expect(said.offer.length).toBe(80);
      if (typeof said !== "string" && said.kind === "offer") offerFault(said.offer);
    }
  });
});

describe("a far end that lies by hand", () => {
  const ready = frameOf(sayReady());
  const offer = frameOf(sayOffer(offerWith()));
  const turnedAway: Record<string, { readonly says: Uint8Array; readonly fault: string }> = {
    "says something of an unknown kind": {
      says: frameOf(changed(sayReady(), 16, 9)),
      fault: "kind 9 is not said",
    },
    "speaks another version": { says: frameOf(changed(sayReady(), 20, 7)), fault: "it speaks version 7" },
    "says a message that is a header alone": { says: frameOf(messageOf(16)), fault: "16 bytes on a link" },
    "says a large message of a user's": {
      says: frameOf(messageOf(500_000, 1)),
      fault: "500000 bytes on a link",
    },
    "has bytes behind its ready": { says: frameOf(messageOfReadyAnd(8)), fault: '8 bytes behind "ready"' },
    "makes the same offer twice": {
      says: new Uint8Array(Buffer.concat([offer, offer])),
      fault: "a second offer",
    },
  };
  for (const [name, { says, fault }] of Object.entries(turnedAway)) {
    test(`and ${name} is turned away`, async () => {
      await using a = await VerbsNode.open("a");
      const raw = await liarTo(a);
      raw.write(says);
      await until(() => raw.closed || raw.ended, "the end of the connection");
      raw.terminate();
      expect(a.kinds()).toEqual(["ERR_ZAP_HANDSHAKE"]);
      expect(a.errors()[0]).toContain("peer liar (127.0.0.1:");
      expect(a.errors()[0]).toContain(fault);
      await expectNothingLeft(a);
    });
  }

  test("and sends what is no message is counted, and the pair comes up all the same", async () => {
    await using a = await VerbsNode.open("a");
    const raw = await liarTo(a);
    raw.write(frameOf(messageOf(64, 1, { magic: 1 })), frameOf(Uint8Array.of(1, 2, 3)));
    raw.write(frameOf(messageOf(64, 1, { size: 65 })), offer, ready);
    await until(() => a.wire.peers().length === 1, "the pair");
    const { drops } = a.wire.stats();
    expect(Object.values(drops).reduce((sum, count) => sum + count, 0)).toBe(3);
    expect(a.kinds()).toEqual(["connected"]);
    raw.terminate();
    await until(() => a.kinds().includes("disconnected"), "the end");
    await expectNothingLeft(a);
  });

  test("and is ready over and over changes nothing", async () => {
    await using a = await VerbsNode.open("a");
    const raw = await liarTo(a);
    raw.write(offer, ...Array.from({ length: 500 }, () => ready));
    await until(() => a.wire.peers().length === 1, "the pair");
    await a.wire.send("liar", messageOf(64, 1));
    expect(a.kinds()).toEqual(["connected"]);
    expect(a.double.flows.size).toBe(1);
    raw.terminate();
    await until(() => a.kinds().includes("disconnected"), "the end");
    expect(a.kinds().filter((kind) => kind === "connected").length).toBe(1);
    await expectNothingLeft(a);
  });

  test("and sends messages on a link that is up: none is received, and the connection ends with an error", async () => {
    await using a = await VerbsNode.open("a");
    const raw = await liarTo(a);
    raw.write(offer, ready);
    await until(() => a.wire.peers().length === 1, "the pair");
    const receiving = a.wire.recv();
    const sends = [1, 2, 3].map((number) => a.wire.send("liar", messageOf(64, number)));
    await within(Promise.all(sends), "the sends");
    raw.write(frameOf(messageOf(400, 9)), frameOf(messageOf(400, 10)));
    await until(() => a.kinds().includes("disconnected"), "the end");
    raw.terminate();
    expect(await isSettled(receiving)).toBe(false);
    expect(a.kinds().filter((kind) => kind !== "ERR_ZAP_UNDELIVERED")).toEqual([
      "connected",
      "ERR_ZAP_HANDSHAKE",
      "disconnected",
    ]);
    await until(() => a.wire.stats().undelivered === 3, "what was handed over to be reported");
    await until(() => a.double.flows.size === 0, "the end of the queue pair");
    await using honest = await VerbsNode.open("honest");
    await within(honest.wire.connect(a.address), "connect");
    await honest.wire.send("a", messageOf(64, 7));
    const envelope = await within(receiving, "a message of somebody else's");
    expect(envelope.peer).toBe("honest");
    envelope.release();
  });

  test("and makes a second offer when it is up loses what it has", async () => {
    await using a = await VerbsNode.open("a");
    const raw = await liarTo(a);
    raw.write(offer, ready);
    await until(() => a.wire.peers().length === 1, "the pair");
    raw.write(offer);
    await until(() => a.kinds().includes("disconnected"), "the end");
    raw.terminate();
    expect(a.errors()[0]).toContain("a second offer on one link");
    await expectNothingLeft(a);
  });

  test("and never says that it is ready is given up in time, with what waits for it", async () => {
    await using a = await VerbsNode.open("a", { limits: { handshakeMillis: 80, sendMillis: 400 } });
    const raw = await liarTo(a);
    raw.write(offer);
    const waiting = a.wire.send("liar", messageOf(64, 1));
    await until(() => raw.closed || raw.ended, "the end of the connection");
    raw.terminate();
    expect(a.errors()[0]).toContain("not finished within 80 ms (limits.handshakeMillis)");
    expect((await failureOf(waiting)).code).toBe("ERR_ZAP_PEER_UNREACHABLE");
    expect(a.kinds()).toEqual(["ERR_ZAP_HANDSHAKE"]);
    await expectNothingLeft(a);
  });

  test("and hangs up amid its offer, or behind it, leaves nothing", async () => {
    await using a = await VerbsNode.open("a");
    for (const length of [1, 4, 50, offer.length - 1, offer.length]) {
      const raw = await liarTo(a);
      raw.write(offer.subarray(0, length));
      if (length === offer.length)
        await until(() => raw.received.length > HELLO_FRAME_BYTES + OFFER_FRAME_BYTES, "ready");
      raw.terminate();
      await until(() => a.double.flows.size === 0, "the end of the queue pair");
    }
    expect(a.kinds()).not.toContain("connected");
    await expectNothingLeft(a);
  });

  test("as many as there may be queue pairs, all mute, keep others out no longer than a handshake may take", async () => {
    await using a = await VerbsNode.open("a", { limits: { handshakeMillis: 150 } }, { flows: 3 });
    const mute = await Promise.all(["x", "y", "z"].map((id) => liarTo(a, id)));
    expect(a.double.flows.size).toBe(3);
    await using honest = await VerbsNode.open("honest", { peers: { a: a.address } });
    await within(honest.wire.send("a", messageOf(64, 7)), "the send");
    expect(await numbers(a.wire, 1)).toEqual([7]);
    for (const raw of mute) raw.terminate();
    expect(a.wire.peers()).toEqual(["honest"]);
    expect(a.double.flows.size).toBe(1);
  });

  test("a hundred times over leaves nothing", async () => {
    await using a = await VerbsNode.open("a");
    for (let round = 0; round < 100; round++) {
      const raw = await liarTo(a, `liar-${round % 7}`);
      raw.write(frameOf(messageOf(64, round)));
      await until(() => raw.closed || raw.ended, "the end of the connection");
      raw.terminate();
    }
    expect(a.kinds()).toEqual(Array.from({ length: 100 }, () => "ERR_ZAP_HANDSHAKE"));
    await expectNothingLeft(a);
  });
});

/** A ready with so many bytes behind it. */
function messageOfReadyAnd(bytes: number): Uint8Array {
  const whole = new Uint8Array(24 + bytes);
  whole.set(sayReady());
  return changed(whole, 12, whole.length);
}
