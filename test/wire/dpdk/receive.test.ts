import { toArrayBuffer, type Pointer } from "bun:ffi";
import { describe, expect, test } from "bun:test";
import { isSlabBuffer, type SlabBuffer } from "../../../lib/memory/index.ts";
import type { Envelope } from "../../../lib/wire/index.ts";
import { isMessage, messageOf, numberOf } from "../../support/messages.ts";
import { failureOf, isSettled, until, within } from "../../support/wait.ts";
import { turns, WireOnDouble } from "./engine-double.ts";

describe("receiving over the hand-off ring", () => {
  test("each message goes to one call, in order of asking, and its memory back when it is released", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    const waiting = [wire.recv(), wire.recv()];
    const tokens = [0, 1, 2].map((number) => double.deliver(1, messageOf(100, number)));
    const envelopes = [...(await within(Promise.all(waiting), "two messages")), await wire.recv()];
    expect(envelopes.map(({ message }) => numberOf(message))).toEqual([0, 1, 2]);
    expect(envelopes.map(({ peer }) => peer)).toEqual(["them", "them", "them"]);
    expect(double.returned()).toEqual([]);
    envelopes[1]!.release();
    envelopes[1]!.release();
    envelopes[0]!.release();
    envelopes[2]!.release();
    expect(double.returned()).toEqual([tokens[1]!, tokens[0]!, tokens[2]!]);
  });

  test("nothing is taken from the ring before somebody asks for it, and nobody asks to be woken in vain", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    double.deliver(1, messageOf(64, 0));
    double.deliver(1, messageOf(64, 1));
    await turns();
    expect(double.handoff.head).toBe(0n);
    expect(double.handoff.armed).toBe(false);
    wire.tryRecv()!.release();
    expect(double.handoff.head).toBe(1n);
    wire.tryRecv()!.release();
    expect(wire.tryRecv()).toBeNull();
    expect(double.handoff.armed).toBe(false);
    const abort = new AbortController();
    const waiting = wire.recv(abort.signal);
    expect(double.handoff.armed).toBe(true);
    abort.abort();
    await failureOf(waiting);
  });

  test("goes on where the counts pass 32 bits", async () => {
    await using node = await WireOnDouble.open({ double: { startAt: 2n ** 32n - 3n } });
    const { double, wire } = node;
    await node.connected();
    for (let number = 0; number < 10; number++) {
      const token = double.deliver(1, messageOf(64, number));
      const envelope = await within(wire.recv(), "a message");
      expect(numberOf(envelope.message)).toBe(number);
      envelope.release();
      expect(double.returned()).toEqual([token]);
    }
    expect(double.handoff.head).toBe(2n ** 32n + 7n);
    double.down({ flow: 1, reason: 1 });
    await turns();
    expect(wire.peers()).toEqual([]);
  });

  test("an abort loses no message, and tryRecv does not overtake whoever waits", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    const abort = new AbortController();
    const first = wire.recv(abort.signal);
    const second = wire.recv();
    abort.abort("no more");
    expect((await failureOf(first)).code).toBe("ERR_ZAP_ABORTED");
    double.deliver(1, messageOf(64, 0));
    double.deliver(1, messageOf(64, 1));
    const early = wire.tryRecv();
    expect(numberOf((await second).message)).toBe(0);
    expect(numberOf(early!.message)).toBe(1);
    expect((await failureOf(wire.recv(AbortSignal.abort()))).code).toBe("ERR_ZAP_ABORTED");
  });

  test("who sent a message is known although its flow came up, or ended, while nobody looked", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    // All before our loop turns once.
    double.up({ flow: 5, id: "early" });
    double.deliver(5, messageOf(64, 0));
    double.deliver(5, messageOf(64, 1));
    double.down({ flow: 5, reason: 64 });
    double.up({ flow: 6, id: "later" });
    double.deliver(6, messageOf(64, 2));
    const first = wire.tryRecv()!;
    expect(first.peer).toBe("early");
    await Bun.sleep(150);
    const rest: Envelope[] = [wire.tryRecv()!, wire.tryRecv()!];
    expect(rest.map(({ peer, message }) => [peer, numberOf(message)])).toEqual([
      ["early", 1],
      ["later", 2],
    ]);
    expect(node.kinds()).toEqual(["connected", "ERR_ZAP_CONNECTION_LOST", "disconnected", "connected"]);
    // Not before: one that is collected is an event of its own.
    for (const envelope of [first, ...rest]) envelope.release();
  });

  test("for await takes all and ends with the wire", async () => {
    const node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    const numbers: number[] = [];
    const loop = (async () => {
      for await (const envelope of { [Symbol.asyncIterator]: () => wire.iterate() }) {
        numbers.push(numberOf(envelope.message));
        envelope.release();
      }
    })();
    for (let number = 0; number < 5; number++) double.deliver(1, messageOf(64, number));
    await until(() => numbers.length === 5, "five messages");
    await wire.close();
    await within(loop, "the loop's end");
    expect(numbers).toEqual([0, 1, 2, 3, 4]);
  });

  test("a loop that only receives lets timers run", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    let [received, at] = [0, -1];
    const filled = messageOf(64, 0);
    setImmediate(() => (at = received));
    for (; received < 50_000; received++) {
      double.deliver(1, filled);
      (await wire.recv()).release();
      if (received % 1_000 === 0) double.returned();
    }
    expect(at).toBeLessThan(10_000);
  });

  test("the buffer of an envelope is the message, and its release is the envelope's", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    const token = double.deliver(1, messageOf(1_000, 3));
    const envelope = await wire.recv();
    const buffer = envelope.buffer!;
    expect(isSlabBuffer(buffer)).toBe(true);
    expect(isMessage(buffer.bytes, 3)).toBe(true);
    expect(buffer.bytes.length).toBe(1_000);
    buffer.release();
    envelope.release();
    expect(double.returned()).toEqual([token]);
    expect(() => envelope.message).toThrow("released");
    expect(() => buffer.bytes).toThrow("released");
  });

  test("in debug mode views are empty after release, and the memory is poisoned before it goes back", async () => {
    await using node = await WireOnDouble.open({ debug: true });
    const { double, wire } = node;
    await node.connected();
    double.deliver(1, messageOf(200, 1));
    double.deliver(1, messageOf(200, 2));
    const [one, two] = [await wire.recv(), await wire.recv()];
    const view = one.message;
    const { buffer } = view;
    const { address } = one.buffer as SlabBuffer;
    one.release();
    expect([view.length, buffer.byteLength]).toEqual([0, 0]);
    const memory = new Uint8Array(toArrayBuffer(address as Pointer, 0, 200));
    expect(memory.every((byte) => byte === 0xdb)).toBe(true);
    expect(isMessage(two.message, 2)).toBe(true);
    expect(double.returned()).toHaveLength(1);
    two.release();
  });

  test("messages of one region outlive a transfer of its ArrayBuffer, which is reported once", async () => {
    const node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    double.deliver(1, messageOf(200, 1));
    double.deliver(1, messageOf(200, 2));
    const [one, two] = [await wire.recv(), await wire.recv()];
    (one.message.buffer as ArrayBuffer).transfer();
    expect(isMessage(two.message, 2)).toBe(true);
    expect(isMessage(one.message, 1)).toBe(true);
    one.release();
    two.release();
    double.deliver(1, messageOf(200, 3));
    const three = await wire.recv();
    expect(isMessage(three.message, 3)).toBe(true);
    three.release();
    await wire.close();
    await turns();
    expect(node.kinds().filter((kind) => kind === "ERR_ZAP_POOL")).toHaveLength(1);
    expect(double.freed).toBe(false);
    expect(node.kind.closed).toBe(true);
  });

  test("envelopes that are collected unreleased are reported, by peer", async () => {
    await using node = await WireOnDouble.open();
    const { double, wire } = node;
    await node.connected();
    await (async () => {
      for (let i = 0; i < 3; i++) {
        double.deliver(1, messageOf(64, i));
        expect((await wire.recv()).message.length).toBe(64);
      }
      double.deliver(1, messageOf(64, 3));
      (await wire.recv()).release();
    })();
    const found = (): boolean => node.events.some((event) => event.type === "unreleased");
    for (let i = 0; i < 40 && !found(); i++) {
      await Bun.sleep(60);
      Bun.gc(true);
    }
    const event = node.events.find((each) => each.type === "unreleased");
    expect(event).toEqual({ type: "unreleased", peer: "them", envelopes: 3 });
  });

  test("recv rejects once the wire is closed", async () => {
    const node = await WireOnDouble.open();
    const waiting = node.wire.recv();
    expect(await isSettled(waiting)).toBe(false);
    void node.wire.close();
    expect((await failureOf(waiting)).code).toBe("ERR_ZAP_CLOSED");
    expect((await failureOf(node.wire.recv())).code).toBe("ERR_ZAP_CLOSED");
    expect(node.wire.tryRecv()).toBeNull();
  });
});
