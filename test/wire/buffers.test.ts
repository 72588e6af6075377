/**
 * Whose memory a message is: until `send` resolves it is read where it lies, after that the caller may write to it, whatever kind
 * of `Uint8Array` it is and whatever became of the connection in between.
 */
import { describe, expect, test } from "bun:test";
import { helloOf, isMessage, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener, type RawSocket } from "../support/raw.ts";
import { within } from "../support/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** More than the kernel takes for a peer that does not read. */
const LARGE = 12 * MIB;
const LIMITS = { limits: { frameBytes: 64 * MIB } };

/** A class with ideas of its own about slices: they share memory, as those of `Buffer` do, and are marked. */
class Odd extends Uint8Array<ArrayBuffer> {
  override slice(from?: number, to?: number): Uint8Array<ArrayBuffer> {
    return this.subarray(from, to);
  }
  static get [Symbol.species](): Uint8ArrayConstructor {
    return Uint8Array;
  }
}

/** `messageOf(bytes, number)` as each kind of view. */
const KINDS: Record<string, (bytes: number, number: number) => Uint8Array> = {
  "a Uint8Array": messageOf,
  "a Buffer": (bytes, number) => Buffer.from(messageOf(bytes, number).buffer as ArrayBuffer),
  "a Buffer in the middle of another": (bytes, number) => {
    const all = Buffer.alloc(bytes + 200, 0xcc);
    all.set(messageOf(bytes, number), 123);
    return all.subarray(123, 123 + bytes);
  },
  "a view with an offset": (bytes, number) => {
    const all = new Uint8Array(bytes + 77).fill(0xcc);
    all.set(messageOf(bytes, number), 70);
    return all.subarray(70, 70 + bytes);
  },
  "a subclass": (bytes, number) => {
    const odd = new Odd(new ArrayBuffer(bytes + 33), 32, bytes);
    odd.set(messageOf(bytes, number));
    return odd;
  },
  "a view of shared memory": (bytes, number) => {
    const shared = new Uint8Array(new SharedArrayBuffer(bytes + 8), 8, bytes);
    shared.set(messageOf(bytes, number));
    return shared;
  },
};
const kinds = Object.entries(KINDS);

/** A `send` whose message is written over in the moment in which that is allowed. */
function sendAndReuse(node: Node, peer: string, message: Uint8Array, signal?: AbortSignal): Promise<void> {
  const sending = node.transport.send(peer, message, signal === undefined ? {} : { signal });
  return sending.then(() => void message.fill(0xee));
}

async function expectMessage(raw: RawSocket, bytes: number, number: number): Promise<void> {
  const got = await raw.message(8_000);
  expect([got.length, numberOf(got), isMessage(got, number)]).toEqual([bytes, number, true]);
}

describe("a message may be written over as soon as send resolves", () => {
  for (const [kind, make] of kinds) {
    test(`where it is ${kind}, of any size`, async () => {
      await using net = new Net();
      const [a, b] = await net.pair();
      const sizes = [16, 20, 1_000, 16_379, 16_380, 16_381, 128 * KIB, 128 * KIB + 1, 300 * KIB, 3 * MIB];
      const sending = (async () => {
        for (const [n, bytes] of sizes.entries()) await sendAndReuse(a, "b", make(bytes, n));
      })();
      for (const [n, bytes] of sizes.entries()) {
        const { message } = await b.recv();
        expect([message.length, isMessage(message, n)]).toEqual([bytes, true]);
      }
      await within(sending, "the sends");
    });

    test(`where it is ${kind} that was taken at once, before anything of it is out`, async () => {
      await using net = new Net();
      const [a, b] = await net.pair();
      for (let n = 0; n < 20; n++) {
        const message = make(1_000, n);
        if (n % 2 === 0) expect(a.transport.trySend("b", message)).toBe(true);
        else void a.transport.send("b", message);
        message.fill(0xee);
      }
      await b.takeNumbered(20);
    });

    test(`where it is ${kind} that is aborted in the middle of its write`, async () => {
      await using net = new Net(LIMITS);
      const node = await net.node("node");
      const raw = await net.rawPeer(node, "slow");
      raw.pause();
      const abort = new AbortController();
      const sending = sendAndReuse(node, "slow", make(LARGE, 1), abort.signal);
      await node.untilHalfWritten(LARGE);
      abort.abort();
      await within(sending, "the send");
      const next = node.transport.send("slow", messageOf(64, 2));
      raw.resume();
      await expectMessage(raw, LARGE, 1);
      await expectMessage(raw, 64, 2);
      await next;
    });

    test(`where it is ${kind}, aborted in the middle of its write, and then the connection is lost`, async () => {
      await using net = new Net({ limits: { ...LIMITS.limits, reconnectMinMillis: 10 } });
      using listener = new RawListener();
      const node = await net.node("node", { peers: { far: listener.address } });
      const first = await listener.socket();
      first.write(helloOf("far"));
      await first.frame();
      first.pause();
      await node.untilPeers(1);
      const abort = new AbortController();
      const sending = sendAndReuse(node, "far", make(LARGE, 1), abort.signal);
      await node.untilHalfWritten(LARGE);
      abort.abort();
      await within(sending, "the send");
      first.terminate();
      // It is sent again from its start.
      const second = await listener.socket(1);
      second.write(helloOf("far"));
      await second.frame();
      await expectMessage(second, LARGE, 1);
    });

    test(`where it is ${kind}, half written when the peer half-closes`, async () => {
      await using net = new Net(LIMITS);
      const node = await net.node("node");
      const raw = await net.rawPeer(node, "leaving");
      raw.pause();
      const sending = sendAndReuse(node, "leaving", make(LARGE, 1));
      await node.untilHalfWritten(LARGE);
      raw.shutdown();
      await within(sending, "the send");
      raw.resume();
      await expectMessage(raw, LARGE, 1);
      await raw.untilClosed();
      expect([raw.received.length, node.transport.stats().undelivered, node.troubles]).toEqual([0, 0, []]);
    });

    test(`where it is ${kind}, half written when the connection is lost`, async () => {
      await using net = new Net({ limits: { ...LIMITS.limits, reconnectMinMillis: 10 } });
      using listener = new RawListener();
      const node = await net.node("node", { peers: { far: listener.address } });
      const sending = sendAndReuse(node, "far", make(LARGE, 1));
      for (let i = 0; i < 2; i++) {
        const socket = await listener.socket(i);
        socket.write(helloOf("far"));
        await socket.frame();
        socket.pause();
        await node.untilHalfWritten(LARGE);
        socket.terminate();
      }
      const last = await listener.socket(2);
      last.write(helloOf("far"));
      await last.frame();
      await expectMessage(last, LARGE, 1);
      await within(sending, "the send");
    });
  }
});

describe("a send that waits", () => {
  for (const [kind, make] of kinds) {
    test(`for a connection reads ${kind} when its turn comes, and not after it resolved`, async () => {
      await using net = new Net({ limits: { reconnectMinMillis: 10 } });
      using listener = new RawListener();
      const node = await net.node("node", { peers: { far: listener.address } });
      const sends = [100, 200 * KIB, 100].map((bytes, n) => sendAndReuse(node, "far", make(bytes, n)));
      const socket = await listener.socket();
      socket.write(helloOf("far"));
      await socket.frame();
      for (const [n, bytes] of [100, 200 * KIB, 100].entries()) await expectMessage(socket, bytes, n);
      await within(Promise.all(sends), "the sends");
    });
  }
});
