/** `for await` over a transport: leaving it, in any way and at any moment, costs no message. */
import { describe, expect, test } from "bun:test";
import type { Envelope } from "../../lib/wire/index.ts";
import { messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { isSettled, until, within } from "../support/wait.ts";

const take = (envelope: Envelope): number => {
  const number = numberOf(envelope.message);
  envelope.release();
  return number;
};

/** Everything that is queued at `node` by now. */
function rest(node: Node): number[] {
  const numbers: number[] = [];
  for (let next = node.transport.tryRecv(); next !== null; next = node.transport.tryRecv())
    numbers.push(take(next));
  return numbers;
}

const iteratorOf = (node: Node): AsyncIterator<Envelope> => node.transport[Symbol.asyncIterator]();

describe("a loop over what arrives", () => {
  for (const how of ["break", "return", "throw"] as const) {
    test(`that is left by ${how} leaves the rest to others, in order`, async () => {
      await using net = new Net();
      const [a, b] = await net.pair();
      await a.sendNumbered("b", 20);
      const got: number[] = [];
      const loop = async (): Promise<void> => {
        for await (const envelope of b.transport) {
          got.push(take(envelope));
          if (got.length < 5) continue;
          if (how === "break") break;
          if (how === "return") return;
          throw new Error("enough");
        }
      };
      await within(
        loop().catch((error: Error) => expect(error.message).toBe("enough")),
        "the loop to end",
      );
      for await (const envelope of b.transport) if (got.push(take(envelope)) === 10) break;
      await until(() => b.transport.stats().queuedInMessages === 10, "the others");
      expect([...got, ...rest(b)]).toEqual([...Array(20).keys()]);
      expect(b.transport.stats().waitingRecvs).toBe(0);
    });
  }

  test("ends when the transport is closed, also while it waits", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const got: number[] = [];
    const loop = (async () => {
      for await (const envelope of b.transport) got.push(take(envelope));
    })();
    await a.sendNumbered("b", 3);
    await until(() => got.length === 3, "the messages");
    await b.close();
    await within(loop, "the loop to end");
    expect((await iteratorOf(b).next()).done).toBe(true);
  });
});

describe("return() of an iterator", () => {
  test("with a next() that waits ends that, and the message that comes then goes to another", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const iterator = iteratorOf(b);
    const waiting = iterator.next();
    expect(b.transport.stats().waitingRecvs).toBe(1);
    expect(await within(iterator.return!(), "return()")).toEqual({ done: true, value: undefined });
    expect(await within(waiting, "next()", 500)).toEqual({ done: true, value: undefined });
    expect(b.transport.stats().waitingRecvs).toBe(0);
    await a.send("b", messageOf(64, 77));
    expect(numberOf((await b.recv()).message)).toBe(77);
  });

  test("with many that wait ends them all, and no one else's", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const [leaving, staying] = [iteratorOf(b), iteratorOf(b)];
    const left: Promise<IteratorResult<Envelope>>[] = [];
    const stayed: Promise<IteratorResult<Envelope>>[] = [];
    const calls: Promise<number>[] = [];
    for (let n = 0; n < 30; n++) {
      left.push(leaving.next());
      if (n % 3 === 0) stayed.push(staying.next());
      if (n % 3 === 1) calls.push(b.transport.recv().then(take));
    }
    await leaving.return!();
    for (const one of left) expect((await within(one, "next()", 500)).done).toBe(true);
    expect(b.transport.stats().waitingRecvs).toBe(20);
    await a.sendNumbered("b", 20);
    const numbers: number[] = [];
    for (let n = 0; n < 10; n++) {
      const result = await within(stayed[n]!, "next()");
      numbers.push(result.done === true ? -1 : take(result.value), await within(calls[n]!, "recv"));
    }
    expect(numbers).toEqual([...Array(20).keys()]);
  });

  test("after its messages came keeps those, and gives up just what still waits", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const iterator = iteratorOf(b);
    const nexts = Array.from({ length: 5 }, () => iterator.next());
    await a.sendNumbered("b", 2);
    await until(() => b.transport.stats().messagesIn === 2, "the messages");
    await iterator.return!();
    const results = await within(Promise.all(nexts), "all");
    expect(results.map((one) => (one.done === true ? null : take(one.value)))).toEqual([
      0,
      1,
      null,
      null,
      null,
    ]);
    await a.sendNumbered("b", 1, 64, 2);
    expect(numberOf((await b.recv()).message)).toBe(2);
  });

  test("of one that has gone on for long remembers nothing of what is over", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const iterator = iteratorOf(b);
    for (let n = 0; n < 200; n++) {
      const waiting = iterator.next();
      expect(b.transport.stats().waitingRecvs).toBe(1);
      await a.send("b", messageOf(64, n));
      const result = await within(waiting, "next()");
      expect(result.done === true ? -1 : take(result.value)).toBe(n);
    }
    const last = iterator.next();
    await iterator.return!();
    expect((await last).done).toBe(true);
    expect([b.transport.stats().waitingRecvs, await isSettled(iterator.return!())]).toEqual([0, true]);
  });
});

test("loops that come and go all the while take every message between them, once and in order", async () => {
  await using net = new Net();
  const [a, b] = await net.pair();
  const count = 600;
  const got: number[] = [];
  const consumer = async (share: number): Promise<void> => {
    while (got.length < count) {
      const iterator = iteratorOf(b);
      for (let n = 0; n < share && got.length < count; n++) {
        const waiting = iterator.next();
        // Now and then it gives up while it waits.
        if ((got.length + n) % 7 === 0) setImmediate(() => void iterator.return!());
        const result = await waiting;
        if (result.done === true) break;
        got.push(take(result.value));
      }
      await iterator.return!();
      await Bun.sleep(0);
    }
  };
  const sending = (async () => {
    for (let n = 0; n < count; n++) {
      await a.transport.send("b", messageOf(64, n));
      if (n % 20 === 0) await Bun.sleep(0);
    }
  })();
  const consumers = [1, 3, 10].map(consumer);
  await sending;
  await until(() => got.length === count, "every message", 5_000);
  // Those that still wait are let go.
  await b.close();
  await within(Promise.all(consumers), "the consumers");
  expect(got).toEqual([...Array(count).keys()]);
});
