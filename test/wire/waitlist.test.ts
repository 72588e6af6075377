import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { WaitList, type Waiter } from "../../lib/wire/common/waitlist.ts";
import { messageOf, numberOf } from "../support/messages.ts";
import { freeAddresses, Net } from "../support/nodes.ts";
import { runs } from "../support/properties.ts";
import { within } from "../support/wait.ts";

class Call implements Waiter {
  state: Waiter["state"] = "waiting";
  readonly name: number;
  constructor(name: number) {
    this.name = name;
  }
}

function listOf(count: number): { list: WaitList<Call>; calls: Call[] } {
  const list = new WaitList<Call>();
  const calls = Array.from({ length: count }, (_, name) => new Call(name));
  for (const call of calls) list.push(call);
  return { list, calls };
}

/** The waiters that the list holds on to, those that gave up included. */
function heldBy(list: WaitList<Call>): number {
  return (list as unknown as { queue: { length: number } }).queue.length;
}

describe("a list of calls that wait", () => {
  test("serves in order of asking, and passes over those that gave up", () => {
    const { list, calls } = listOf(6);
    for (const name of [0, 1, 3, 5]) expect(list.drop(calls[name]!)).toBe(true);
    expect([list.length, list.peek()?.name]).toEqual([2, 2]);
    expect([list.shift()?.name, list.shift()?.name, list.shift()]).toEqual([2, 4, undefined]);
    expect([list.length, list.peek()]).toEqual([0, undefined]);
    list.push(new Call(6));
    expect([list.length, list.shift()?.name]).toEqual([1, 6]);
  });

  test("lets a call give up once, and only while it waits", () => {
    const { list, calls } = listOf(3);
    const [dropped, taken, drained] = calls as [Call, Call, Call];
    expect([list.drop(dropped), list.drop(dropped)]).toEqual([true, false]);
    expect(list.shift()).toBe(taken);
    expect(list.drop(taken)).toBe(false);
    expect(list.drain()).toEqual([drained]);
    expect(list.drop(drained)).toBe(false);
    expect(calls.map((call) => call.state)).toEqual(["dropped", "taken", "taken"]);
    expect(list.length).toBe(0);
  });

  test("drains those that wait, in order, and none that gave up", () => {
    const { list, calls } = listOf(5);
    list.drop(calls[0]!);
    list.drop(calls[3]!);
    expect(list.drain().map((call) => call.name)).toEqual([1, 2, 4]);
    expect([list.length, list.peek(), list.shift(), list.drain()]).toEqual([0, undefined, undefined, []]);
  });

  test("does not grow with those that gave up, wherever they stood", () => {
    for (const waiting of [0, 1, 10, 300]) {
      const { list, calls } = listOf(waiting);
      let most = 0;
      for (let n = 0; n < 20_000; n++) {
        const call = new Call(waiting + n);
        list.push(call);
        list.drop(call);
        most = Math.max(most, heldBy(list));
      }
      expect(most).toBeLessThanOrEqual(2 * waiting + 40);
      expect(list.length).toBe(waiting);
      expect(list.drain()).toEqual(calls);
    }
  });

  test("behaves like an array, whatever is done with it", () => {
    const step = fc.oneof(
      { weight: 5, arbitrary: fc.record({ what: fc.constant("push" as const), n: fc.nat(60) }) },
      { weight: 6, arbitrary: fc.record({ what: fc.constant("drop" as const), n: fc.nat() }) },
      { weight: 2, arbitrary: fc.record({ what: fc.constant("drops" as const), n: fc.nat() }) },
      { weight: 3, arbitrary: fc.record({ what: fc.constant("shift" as const), n: fc.nat(20) }) },
      { weight: 1, arbitrary: fc.record({ what: fc.constant("drain" as const), n: fc.constant(0) }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: "max" }), (steps) => {
        const list = new WaitList<Call>();
        const all: Call[] = [];
        const model: Call[] = [];
        const drop = (call: Call): void => {
          const at = model.indexOf(call);
          expect(list.drop(call)).toBe(at >= 0);
          if (at < 0) return;
          model.splice(at, 1);
          expect(heldBy(list)).toBeLessThanOrEqual(2 * list.length + 32);
        };
        for (const { what, n } of steps) {
          if (what === "push") {
            for (let i = 0; i < n; i++) {
              const call = new Call(all.length);
              for (const queue of [list, all, model]) queue.push(call);
            }
          } else if (what === "drop") {
            if (all.length > 0) drop(all[n % all.length]!);
          } else if (what === "drops") {
            // Every third one, beginning anywhere: many at once, as one signal does it.
            for (let i = n % 3; i < all.length; i += 3) drop(all[i]!);
          } else if (what === "shift") {
            for (let i = 0; i < n; i++) expect(list.shift()).toBe(model.shift()!);
          } else expect(list.drain()).toEqual(model.splice(0));
          expect([list.length, list.peek()]).toEqual([model.length, model[0]]);
        }
        expect(list.drain()).toEqual(model);
      }),
      runs(200),
    );
  });
});

describe("thousands of calls that one signal aborts", () => {
  async function rejections(calls: readonly Promise<unknown>[]): Promise<string[]> {
    const all = await within(Promise.allSettled(calls), "every call to settle");
    return [...new Set(all.map((one) => (one.status === "rejected" ? String(one.reason.name) : "resolved")))];
  }

  test("of recv, 20,000 of them, all reject, nothing waits any more, and the calls that stayed get their messages", async () => {
    const COUNT = 20_000;
    await using net = new Net();
    const [a, b] = await net.pair();
    const abort = new AbortController();
    const stay: Promise<number>[] = [];
    const calls: Promise<unknown>[] = [];
    for (let n = 0; n < COUNT; n++) {
      if (n % (COUNT / 4) === COUNT / 8) {
        stay.push(b.transport.recv().then(({ message }) => numberOf(message)));
      }
      calls.push(b.transport.recv({ signal: abort.signal }));
    }
    expect(b.transport.stats().waitingRecvs).toBe(COUNT + 4);
    abort.abort("enough");
    expect(await rejections(calls)).toEqual(["AbortError"]);
    expect(b.transport.stats().waitingRecvs).toBe(4);
    await a.sendNumbered("b", 4);
    expect(await within(Promise.all(stay), "the others")).toEqual([0, 1, 2, 3]);
    expect(b.transport.stats()).toMatchObject({ waitingRecvs: 0, queuedInMessages: 0 });
  });

  // Most of the time goes into Bun's list of listeners of one signal.
  for (const [COUNT, state] of [
    [20_000, "without a connection"],
    [5_000, "behind a full queue"],
  ] as const) {
    test(`of send ${state}, ${COUNT} of them, all reject, and what stayed arrives in order`, async () => {
      await using net = new Net({ limits: { sendQueueBytes: 64 * 1024, reconnectMinMillis: 20 } });
      const [address] = freeAddresses(1) as [string];
      const node = await net.node("node", { peers: { far: address } });
      const stay: Promise<void>[] = [];
      if (state === "behind a full queue") {
        const raw = await net.rawPeer(node, "far");
        raw.pause();
        // Larger than the kernel's buffers: it stands in the way for as long as nobody reads.
        stay.push(node.transport.send("far", messageOf(9 * 1024 * 1024, 0)));
      } else stay.push(node.transport.send("far", messageOf(300_000, 0)));
      const abort = new AbortController();
      const calls: Promise<void>[] = [];
      const message = messageOf(20, 99);
      for (let n = 0; n < COUNT; n++) {
        if (n === COUNT / 2) stay.push(node.transport.send("far", messageOf(20, 1)));
        calls.push(node.transport.send("far", message, { signal: abort.signal }));
      }
      const before = node.transport.stats();
      expect(before.waitingSends).toBeGreaterThan(COUNT);
      abort.abort("enough");
      expect(await rejections(calls)).toEqual(["AbortError"]);
      expect(before.waitingSends - node.transport.stats().waitingSends).toBe(COUNT);
      for (const one of stay) one.catch(() => {});
      if (state === "without a connection") {
        const far = await net.node("far", { listen: address });
        expect(await far.takeNumbered(2)).toEqual(new Map([["node", 2]]));
        await within(Promise.all(stay), "the sends that stayed");
        expect(node.transport.stats()).toMatchObject({ waitingSends: 0, queuedOutMessages: 0 });
      }
    });
  }
});
