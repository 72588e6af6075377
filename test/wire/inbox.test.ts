import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { Envelope } from "../../lib/wire/contract.ts";
import { EnvelopeIterator } from "../../lib/wire/common/iterator.ts";
import { Lease } from "../../lib/wire/common/lease.ts";
import { Batch, Inbox, type BatchSource } from "../../lib/wire/sockets/inbox.ts";
import { frameOf, joined, messageOf, numberOf } from "../support/messages.ts";
import { runs } from "../support/properties.ts";
import { failureOf, isSettled } from "../support/wait.ts";

class Source implements BatchSource {
  readonly peerId: string;
  queuedBytes = 0;
  takes = 0;
  constructor(peerId: string) {
    this.peerId = peerId;
  }
  taken(): void {
    this.takes++;
  }
}

const openInbox = (): Inbox => new Inbox(() => {});

/** `count` messages in one chunk, numbered from `first` on. */
function batchOf(
  source: Source,
  first: number,
  count = 1,
  bytes = 20,
  lease = new Lease(source.peerId),
): Batch {
  const chunk = joined(...Array.from({ length: count }, (_, i) => frameOf(messageOf(bytes, first + i))));
  return new Batch(source, chunk, 0, count, chunk.length, lease, true, null);
}

/** A `recv` with its abort and what came of it. */
class Call {
  readonly abort = new AbortController();
  outcome: number | string | null = null;
  constructor(inbox: Inbox) {
    inbox.recv(this.abort.signal).then(
      (envelope) => void (this.outcome = numberOf(envelope.message)),
      (error: Error & { code: string }) => void (this.outcome = error.code),
    );
  }
}

describe("an inbox", () => {
  test("gives each message to one call, in order of asking, whoever aborts", async () => {
    const step = fc.oneof(
      fc.record({ what: fc.constant("push" as const), n: fc.nat(11) }),
      fc.record({ what: fc.constant("recv" as const), n: fc.nat(20) }),
      fc.record({ what: fc.constant("abort" as const), n: fc.nat(20) }),
      fc.record({ what: fc.constant("take" as const), n: fc.nat(20) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60, size: "max" }), async (steps) => {
        const inbox = openInbox();
        const sources = [new Source("x"), new Source("y")] as const;
        const calls: Call[] = [];
        const expected: (number | string)[] = [];
        const queued: number[] = [];
        const waiting: number[] = [];
        let pushed = 0;
        for (const { what, n } of steps) {
          if (what === "push") {
            const count = 1 + (n >> 1);
            inbox.push(batchOf(sources[n % 2 === 0 ? 0 : 1], pushed, count));
            for (let i = 0; i < count; i++, pushed++) {
              const waiter = waiting.shift();
              if (waiter === undefined) queued.push(pushed);
              else expected[waiter] = pushed;
            }
          } else if (what === "recv") {
            const index = calls.push(new Call(inbox)) - 1;
            const next = queued.shift();
            if (next === undefined) waiting.push(index);
            else expected[index] = next;
          } else if (what === "take") {
            const envelope = inbox.take();
            expect(envelope === undefined ? undefined : numberOf(envelope.message)).toBe(queued.shift());
          } else if (calls.length > 0) {
            const index = n % calls.length;
            calls[index]?.abort.abort("enough");
            const at = waiting.indexOf(index);
            if (at >= 0) {
              waiting.splice(at, 1);
              expected[index] = "ERR_ZAP_ABORTED";
            }
          }
          expect([inbox.queuedMessages, inbox.waiting]).toEqual([queued.length, waiting.length]);
          expect(sources[0].queuedBytes + sources[1].queuedBytes).toBe(inbox.queuedBytes);
          expect(inbox.queuedBytes).toBeGreaterThanOrEqual(20 * queued.length);
          if (queued.length === 0) expect(inbox.queuedBytes).toBe(0);
        }
        const unread = queued.length;
        for (const waiter of waiting) expected[waiter] = "ERR_ZAP_CLOSED";
        expect(inbox.close()).toBe(unread);
        await Bun.sleep(0);
        expect(calls.map((call) => call.outcome)).toEqual([...expected]);
        expect([inbox.queuedBytes, inbox.queuedMessages]).toEqual([0, 0]);
      }),
      runs(100),
    );
  });

  test("counts the memory of a batch until the last of its messages is taken, then tells where it came from", () => {
    const inbox = openInbox();
    const source = new Source("x");
    inbox.push(batchOf(source, 0, 3, 1_000));
    const all = inbox.queuedBytes;
    expect(all).toBeGreaterThanOrEqual(3_000);
    for (let i = 0; i < 2; i++) expect(numberOf(inbox.take()!.message)).toBe(i);
    expect([inbox.queuedBytes, source.queuedBytes, source.takes]).toEqual([all, all, 0]);
    inbox.take();
    expect([inbox.queuedBytes, source.queuedBytes, source.takes]).toEqual([0, 0, 1]);
    expect(inbox.take()).toBeUndefined();
  });

  test("rejects an aborted signal at once, even where a message lies ready, and keeps the message", async () => {
    const inbox = openInbox();
    inbox.push(batchOf(new Source("x"), 7));
    const error = await failureOf(inbox.recv(AbortSignal.abort("no more")));
    expect([error.code, error.name, error.cause]).toEqual(["ERR_ZAP_ABORTED", "AbortError", "no more"]);
    expect(numberOf((await inbox.recv(undefined)).message)).toBe(7);
  });

  test("rejects after its end", async () => {
    const inbox = openInbox();
    const waiting = inbox.recv(undefined);
    expect(await isSettled(waiting)).toBe(false);
    inbox.close();
    expect((await failureOf(waiting)).code).toBe("ERR_ZAP_CLOSED");
    expect((await failureOf(inbox.recv(undefined))).code).toBe("ERR_ZAP_CLOSED");
  });

  test("serves loops in the same line, and ends them when it is closed", async () => {
    const inbox = openInbox();
    const source = new Source("x");
    const loop = new EnvelopeIterator(inbox);
    const got: string[] = [];
    const note = (who: string) => (result: IteratorResult<Envelope>) =>
      void got.push(`${who} ${result.done === true ? "done" : numberOf(result.value.message)}`);
    inbox.push(batchOf(source, 0));
    const calls = [loop.next().then(note("first")), loop.next().then(note("second"))];
    calls.push(inbox.recv(undefined).then((value) => note("third")({ done: false, value })));
    calls.push(loop.next().then(note("fourth")));
    inbox.push(batchOf(source, 1, 2));
    await Promise.all(calls.slice(0, 3));
    inbox.close();
    await Promise.all([...calls, loop.next().then(note("fifth"))]);
    expect(got).toEqual(["first 0", "second 1", "third 2", "fourth done", "fifth done"]);
  });

  test("loses no message to a loop that was left while it waited", async () => {
    const inbox = openInbox();
    const loop = new EnvelopeIterator(inbox);
    const left = [loop.next(), loop.next()];
    expect(await loop.return()).toEqual({ done: true, value: undefined });
    for (const next of left) expect((await next).done).toBe(true);
    expect(inbox.waiting).toBe(0);
    inbox.push(batchOf(new Source("x"), 7));
    expect(numberOf((await inbox.recv(undefined)).message)).toBe(7);
  });

  test("leaves no listener on a signal that outlives many calls", async () => {
    const inbox = openInbox();
    const source = new Source("x");
    const { signal } = new AbortController();
    let listeners = 0;
    const { addEventListener, removeEventListener } = signal;
    signal.addEventListener = (...args: unknown[]) => (
      listeners++,
      addEventListener.apply(signal, args as never)
    );
    signal.removeEventListener = (...args: unknown[]) => (
      listeners--,
      removeEventListener.apply(signal, args as never)
    );
    for (let i = 0; i < 100; i++) {
      const call: Promise<Envelope> = inbox.recv(signal);
      inbox.push(batchOf(source, i));
      expect(numberOf((await call).message)).toBe(i);
    }
    expect(listeners).toBe(0);
  });
});

describe("an envelope", () => {
  test("shows the same bytes every time until it is released, and none after that", () => {
    const inbox = openInbox();
    inbox.push(batchOf(new Source("x"), 5, 2, 64));
    const envelope = inbox.take()!;
    expect(envelope.peer).toBe("x");
    expect(envelope.buffer).toBeNull();
    expect(envelope.message).toBe(envelope.message);
    expect(envelope.message).toEqual(messageOf(64, 5));
    envelope.release();
    envelope.release();
    expect(() => envelope.message).toThrow("released");
    expect(inbox.take()!.message).toEqual(messageOf(64, 6));
  });
});

describe("envelopes that are collected without release", () => {
  test("are reported once, with their peer and count; untaken and released ones are not", async () => {
    const reports: [string, number][] = [];
    const inbox = new Inbox(({ peerId, held }) => void reports.push([peerId, held]));
    const forget = (): void => {
      // Two batches of one lease: what is left of both is one report.
      const lease = inbox.lease("careless");
      inbox.push(batchOf(new Source("careless"), 0, 2, 20, lease));
      inbox.push(batchOf(new Source("careless"), 2, 1, 20, lease));
      inbox.take();
      inbox.take()?.release();
      inbox.take();
      inbox.push(batchOf(new Source("tidy"), 0, 1, 20, inbox.lease("tidy")));
      inbox.take()?.release();
    };
    for (let i = 0; i < 20; i++) forget();
    for (let i = 0; i < 50 && reports.length < 15; i++) {
      await Bun.sleep(1);
      Bun.gc(true);
    }
    expect(reports.length).toBeGreaterThan(10);
    for (const [peer, held] of reports) expect([peer, held]).toEqual(["careless", 2]);
    expect(reports.length).toBeLessThanOrEqual(20);
  });
});
