import { describe, expect, test } from "bun:test";
import { Authority } from "../support/certificates.ts";
import { messageOf, numberOf } from "../support/messages.ts";
import { Net } from "../support/nodes.ts";
import { failureOf, isSettled, within } from "../support/wait.ts";

const KIB = 1024;

describe("close while a peer does not read", () => {
  test("gives up after limits.closeMillis and counts what was not delivered", async () => {
    await using net = new Net({ limits: { closeMillis: 300 } });
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "stuck", 1);
    raw.pause();
    let accepted = 0;
    while (node.transport.trySend("stuck", messageOf(60 * KIB, accepted))) {
      accepted++;
      await Bun.sleep(0);
    }
    const waiting = node.transport.send("stuck", messageOf(60 * KIB, accepted));
    const before = performance.now();
    const closing = node.transport.close();
    expect((await failureOf(waiting, 200)).code).toBe("ERR_ZAP_CLOSED");
    const { undelivered } = await within(closing, "close", 2_000);
    const took = performance.now() - before;
    expect(took).toBeGreaterThan(250);
    // It has acknowledged nothing, so nothing is known to have reached it.
    expect(undelivered).toBe(accepted);
    const text = await node.untilError("ERR_ZAP_UNDELIVERED", "stuck");
    expect(text).toContain("stuck");
    expect(node.errors.map((error) => error.text).join("\n")).toContain("limits.closeMillis");
    const reported = node.events.reduce(
      (sum, event) =>
        sum + (event.type === "error" && "messages" in event.error ? Number(event.error.messages) : 0),
      0,
    );
    expect(reported).toBe(accepted);
    expect(node.transport.stats()).toMatchObject({
      undelivered: accepted,
      queuedOutBytes: 0,
      connections: 0,
    });
  });

  test("gives a large message that waits back to its sender with an error", async () => {
    await using net = new Net({ limits: { closeMillis: 200 } });
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "stuck");
    raw.pause();
    const large = node.transport.send("stuck", messageOf(10 * 1024 * KIB, 1));
    expect(await isSettled(large)).toBe(false);
    const { undelivered } = await within(node.transport.close(), "close", 2_000);
    const error = await failureOf(large, 500);
    expect(error.code).toMatch(/ERR_ZAP_(CLOSED|TIMEOUT|PEER_UNREACHABLE)/);
    // Its sender was told by the rejection.
    expect(undelivered).toBe(0);
  });

  test("still flushes to the others", async () => {
    await using net = new Net({ limits: { closeMillis: 500 } });
    const node = await net.node("node");
    const stuck = await net.rawPeer(node, "stuck", 1);
    const other = await net.node("other");
    await other.transport.connect(node.address);
    stuck.pause();
    while (node.transport.trySend("stuck", messageOf(60 * KIB))) await Bun.sleep(0);
    for (let n = 0; n < 50; n++) await node.send("other", messageOf(10 * KIB, n));
    const closing = node.close();
    await other.takeNumbered(50);
    expect((await closing).undelivered).toBeGreaterThan(0);
  });

  test("and then does read takes everything in time", async () => {
    await using net = new Net({ limits: { closeMillis: 4_000 } });
    const node = await net.node("node");
    const raw = await net.rawPeer(node, "slow");
    raw.pause();
    let accepted = 0;
    while (node.transport.trySend("slow", messageOf(60 * KIB, accepted))) {
      accepted++;
      await Bun.sleep(0);
    }
    const closing = node.transport.close();
    expect(await isSettled(closing)).toBe(false);
    raw.resume();
    expect(await raw.numbersToTheEnd()).toEqual([...Array(accepted).keys()]);
    raw.shutdown();
    expect(await within(closing, "close", 1_000)).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
  });
});

describe("close while a peer reads slowly", () => {
  for (const secure of [false, true]) {
    test(`waits for it${secure ? ", over TLS" : ""}, and loses nothing`, async () => {
      const authority = secure ? await Authority.make() : null;
      const tlsOf = async (cn: string) => (authority === null ? {} : { tls: await authority.issue({ cn }) });
      await using net = new Net({ limits: { recvQueueBytes: 64 * KIB, closeMillis: 4_000 } });
      const a = await net.node("a", await tlsOf("a"));
      const b = await net.node("b", await tlsOf("b"));
      await a.transport.connect(b.address);
      let accepted = 0;
      while (a.transport.stats().waitingSends === 0) {
        a.transport.send("b", messageOf(60 * KIB, accepted)).then(
          () => accepted++,
          () => {},
        );
        await Bun.sleep(0);
      }
      const closing = a.transport.close();
      let taken = 0;
      for (; taken < accepted; taken++) {
        const { message } = await b.recv();
        expect(numberOf(message)).toBe(taken);
        if (taken % 10 === 0) await Bun.sleep(10);
      }
      expect(await within(closing, "close")).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
      await b.untilPeers(0);
      expect(b.transport.stats()).toMatchObject({ messagesIn: accepted, queuedInMessages: 0 });
      expect([...a.troubles, ...b.troubles]).toEqual([]);
    }, 10_000);
  }
});
