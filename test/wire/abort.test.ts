import { describe, expect, test } from "bun:test";
import { isMessage, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener, type RawSocket } from "../support/raw.ts";
import { failureOf, isSettled, until, within } from "../support/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const SMALL_QUEUE = { limits: { sendQueueBytes: 64 * KIB } };

/** A node, and a bare peer of it that reads nothing: what is sent to it piles up. */
async function stuckPeer(net: Net): Promise<{ node: Node; raw: RawSocket }> {
  const node = await net.node("node", SMALL_QUEUE);
  const raw = await net.rawPeer(node, "stuck");
  raw.pause();
  return { node, raw };
}

/** Sends 30 KiB messages until one has to wait; returns how many were accepted, and the one that waits. */
async function fill(node: Node, to = "stuck"): Promise<{ accepted: number; waiting: Promise<void> }> {
  for (let accepted = 0; ; accepted++) {
    const waiting = node.transport.send(to, messageOf(30 * KIB, accepted));
    waiting.catch(() => {});
    if (node.transport.stats().waitingSends > 0 && !(await isSettled(waiting))) return { accepted, waiting };
    if (accepted > 10_000) throw new Error("the queue never fills");
  }
}

async function expectAborted(promise: Promise<unknown>, what: string, cause: unknown): Promise<void> {
  const error = await failureOf(promise, 1_000);
  expect([error.code, error.name, error.message, error.cause]).toEqual([
    "ERR_ZAP_ABORTED",
    "AbortError",
    `${what} was aborted`,
    cause,
  ]);
}

describe("an abort of send", () => {
  test("before the call rejects at once and sends nothing", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    for (const bytes of [64, 300 * KIB]) {
      const sending = a.transport.send("b", messageOf(bytes, 1), { signal: AbortSignal.abort("early") });
      await expectAborted(sending, "send", "early");
    }
    await a.send("b", messageOf(64, 2));
    expect(numberOf((await b.recv()).message)).toBe(2);
    expect(a.transport.stats()).toMatchObject({ messagesOut: 1, queuedOutBytes: 0 });
  });

  test("after it was handed over changes nothing", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const abort = new AbortController();
    await a.transport.send("b", messageOf(64, 1), { signal: abort.signal });
    abort.abort();
    expect(numberOf((await b.recv()).message)).toBe(1);
  });

  test("while it waits for room takes that message out, and no other", async () => {
    await using net = new Net();
    const { node, raw } = await stuckPeer(net);
    const { accepted, waiting } = await fill(node);
    const aborts = [1, 2, 3].map(() => new AbortController());
    const sends = aborts.map(({ signal }, i) =>
      node.transport.send("stuck", messageOf(1_000, accepted + 1 + i), { signal }),
    );
    aborts[1]?.abort("enough");
    await expectAborted(sends[1] as Promise<void>, "send", "enough");
    expect(await isSettled(Promise.race([waiting, sends[0], sends[2]]))).toBe(false);
    expect(node.transport.stats().waitingSends).toBe(3);
    raw.resume();
    await within(Promise.all([waiting, sends[0], sends[2]]), "the other sends");
    const expected = [...Array(accepted + 2).keys(), accepted + 3];
    for (const number of expected) expect(numberOf(await raw.message())).toBe(number);
    expect(node.transport.stats()).toMatchObject({
      waitingSends: 0,
      queuedOutBytes: 0,
      queuedOutMessages: 0,
    });
  });

  test("while it waits for a connection takes that message out, and no other", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 20 } });
    const reserved = await net.node("reserved");
    const { address } = reserved;
    await reserved.close();
    const a = await net.node("a", { peers: { b: address } });
    const abort = new AbortController();
    const sends = [0, 1, 2].map((n) =>
      a.transport.send("b", messageOf(64, n), n === 1 ? { signal: abort.signal } : {}),
    );
    abort.abort("no more");
    await expectAborted(sends[1] as Promise<void>, "send", "no more");
    const b = await net.node("b", { listen: address });
    for (const number of [0, 2]) expect(numberOf((await b.recv()).message)).toBe(number);
    await within(Promise.all([sends[0], sends[2]]), "the other sends");
  });

  test("of a large message none of which is out takes it back", async () => {
    await using net = new Net();
    const { node, raw } = await stuckPeer(net);
    const { accepted, waiting } = await fill(node);
    const abort = new AbortController();
    const large = node.transport.send("stuck", messageOf(3 * MIB, 1_000), { signal: abort.signal });
    const small = node.transport.send("stuck", messageOf(64, accepted + 1));
    abort.abort("too slow");
    await expectAborted(large, "send", "too slow");
    raw.resume();
    await within(Promise.all([waiting, small]), "the other sends");
    for (let n = 0; n < accepted + 2; n++) expect(numberOf(await raw.message())).toBe(n);
    await until(() => node.transport.stats().queuedOutBytes === 0, "nothing to be queued");
  });

  test("of a large message in the middle of its write hands it over, so that its bytes are free again", async () => {
    await using net = new Net();
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "stuck");
    raw.pause();
    const abort = new AbortController();
    const message = messageOf(10 * MIB, 1);
    const large = node.transport.send("stuck", message, { signal: abort.signal });
    expect(await isSettled(large)).toBe(false);
    const { queuedOutBytes } = node.transport.stats();
    expect(queuedOutBytes).toBeGreaterThan(0);
    expect(queuedOutBytes).toBeLessThan(10 * MIB);
    abort.abort();
    await within(large, "the send to be handed over");
    message.fill(0);
    const small = node.transport.send("stuck", messageOf(64, 2));
    raw.resume();
    expect(isMessage(await raw.message(), 1)).toBe(true);
    expect(numberOf(await raw.message())).toBe(2);
    await within(small, "the next send");
    expect(node.transport.stats()).toMatchObject({ messagesOut: 2, queuedOutBytes: 0, queuedOutMessages: 0 });
  });
});

describe("an abort of recv", () => {
  test("loses no message, whether it comes before, with, or after the message", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const got: number[] = [];
    for (let n = 0; n < 200; n++) {
      const abort = new AbortController();
      const call = b.transport.recv({ signal: abort.signal }).then(
        (envelope) => (got.push(numberOf(envelope.message)), envelope.release()),
        (error: Error) => expect(error.name).toBe("AbortError"),
      );
      const sending = a.send("b", messageOf(64, n));
      if (n % 4 === 0) abort.abort();
      else if (n % 4 === 1) setImmediate(() => abort.abort());
      else if (n % 4 === 2) void sending.then(() => abort.abort());
      else setTimeout(() => abort.abort(), 1);
      await within(Promise.all([call, sending]), `round ${n}`);
    }
    while (got.length < 200) got.push(numberOf((await b.recv()).message));
    expect(got).toEqual([...Array(200).keys()]);
  });

  test("in the middle of the line lets the others keep their order", async () => {
    await using net = new Net();
    const [a, b] = await net.pair();
    const aborts = [0, 1, 2, 3].map(() => new AbortController());
    const calls = aborts.map(({ signal }) => b.transport.recv({ signal }));
    aborts[1]?.abort("x");
    aborts[2]?.abort("y");
    await expectAborted(calls[1] as Promise<unknown>, "recv", "x");
    await expectAborted(calls[2] as Promise<unknown>, "recv", "y");
    await a.sendNumbered("b", 2);
    expect(numberOf((await within(calls[0]!, "the first")).message)).toBe(0);
    expect(numberOf((await within(calls[3]!, "the last")).message)).toBe(1);
  });

  test("by a timeout signal names the timeout as its cause", async () => {
    await using net = new Net();
    const a = await net.node("a");
    const error = await failureOf(a.transport.recv({ signal: AbortSignal.timeout(10) }));
    expect([error.code, (error.cause as Error).name]).toEqual(["ERR_ZAP_ABORTED", "TimeoutError"]);
    expect(a.transport.stats().waitingRecvs).toBe(0);
  });
});

describe("an abort of connect", () => {
  test("before the call rejects at once and dials nobody", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const a = await net.node("a");
    await expectAborted(
      a.transport.connect(listener.address, { signal: AbortSignal.abort(1) }),
      "connect",
      1,
    );
    await Bun.sleep(20);
    expect(listener.sockets).toHaveLength(0);
  });

  test("while the handshake is not answered hangs up", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const a = await net.node("a");
    const abort = new AbortController();
    const connecting = a.transport.connect(listener.address, { signal: abort.signal });
    const socket = await listener.socket();
    await until(() => socket.received.length === 84, "the hello");
    expect(a.transport.stats().handshakes).toBe(1);
    abort.abort("never mind");
    await expectAborted(connecting, "connect", "never mind");
    await socket.untilClosed();
    expect(a.transport.stats()).toMatchObject({ handshakes: 0, connections: 0 });
    expect(a.errors).toEqual([]);
  });

  test("in the same turn leaves nothing half-open", async () => {
    await using net = new Net();
    const [a, b] = [await net.node("a"), await net.node("b")];
    for (let i = 0; i < 50; i++) {
      const abort = new AbortController();
      const connecting = a.transport.connect(b.address, { signal: abort.signal });
      if (i % 3 === 0) abort.abort(i);
      else if (i % 3 === 1) queueMicrotask(() => abort.abort(i));
      else setImmediate(() => abort.abort(i));
      const outcome = await within(
        connecting.then(
          () => "b",
          (error: Error) => error.name,
        ),
        "connect to settle",
      );
      expect(["AbortError", "b"]).toContain(outcome);
    }
    await until(
      () => a.transport.stats().handshakes + b.transport.stats().handshakes === 0,
      "all to be over",
    );
    // An attempt that was called off does not stand in the way of the next.
    expect(await within(a.transport.connect(b.address), "a last connect")).toBe("b");
    await b.untilPeers(1);
    expect([a, b].map((node) => node.transport.stats().connections)).toEqual([1, 1]);
  });

  test("after it is done leaves the connection alone", async () => {
    await using net = new Net();
    const [a, b] = [await net.node("a"), await net.node("b")];
    const abort = new AbortController();
    await a.transport.connect(b.address, { signal: abort.signal });
    abort.abort();
    await a.send("b", messageOf(64, 4));
    expect(numberOf((await b.recv()).message)).toBe(4);
  });
});
