import { describe, expect, test } from "bun:test";
import { helloOf, messageOf, numberOf } from "../support/messages.ts";
import { freeAddresses, Net } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { failureOf, isSettled, until, within } from "../support/wait.ts";
import { swallower } from "./swallower.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
function wholeFrame(bytes: Uint8Array): Uint8Array | null {
  if (bytes.length < 4) return null;
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  return bytes.length >= 4 + length ? bytes.subarray(4, 4 + length) : null;
}

describe("a peer that comes back at its address", () => {
  test("is connected with again, and gets what waited for it", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 20, reconnectMaxMillis: 100 } });
    const [address] = freeAddresses(1);
    const a = await net.node("a", { peers: { b: address ?? "" } });
    let b = await net.node("b", { listen: address ?? "" });
    await a.untilPeers(1);
    for (let round = 0; round < 5; round++) {
      await a.send("b", messageOf(64, 0));
      expect(numberOf((await b.recv()).message)).toBe(0);
      await b.close();
      await a.untilPeers(0);
      const sends = [1, 2, 3].map((n) => a.transport.send("b", messageOf(n === 2 ? 300 * KIB : 64, n)));
      expect(await isSettled(Promise.race(sends))).toBe(false);
      await Bun.sleep(30 * round);
      b = await net.node("b", { listen: address ?? "" });
      for (let n = 1; n <= 3; n++) expect(numberOf((await b.recv()).message)).toBe(n);
      await within(Promise.all(sends), "the sends that waited");
    }
    expect(a.transport.stats()).toMatchObject({ undelivered: 0, queuedOutBytes: 0, waitingSends: 0 });
  });

  test("is dialled again with growing pauses", async () => {
    await using net = new Net();
    using listener = new RawListener();
    const limits = { reconnectMinMillis: 20, reconnectMaxMillis: 160 };
    const node = await net.node("node", { limits, peers: { b: listener.address } });
    const dialledAt: number[] = [];
    for (let i = 0; i < 7; i++) {
      const socket = await listener.socket(i);
      dialledAt.push(performance.now());
      socket.terminate();
    }
    const pauses = dialledAt.slice(1).map((at, i) => at - (dialledAt[i] ?? 0));
    // Full pauses are 20, 40, 80, 160, 160, 160 ms, with jitter over the upper half.
    for (const [i, full] of [20, 40, 80, 160, 160, 160].entries()) {
      expect(pauses[i] ?? 0).toBeGreaterThanOrEqual(full / 2 - 5);
    }
    expect(node.errors.filter((error) => error.peer === "b").length).toBeLessThan(3);
  });

  test("does not get twice what it took before it went", async () => {
    await using net = new Net({ limits: { reconnectMinMillis: 20, reconnectMaxMillis: 50 } });
    using listener = new RawListener();
    const node = await net.node("node", { peers: { b: listener.address } });
    const got: number[] = [];
    const sending = (async () => {
      // A large message that is cut three times is given up; those behind it are not.
      for (let n = 0; n < 3_000; n++) {
        await node.transport.send("b", messageOf(n % 50 === 0 ? 200 * KIB : 700, n)).catch(() => {});
      }
    })();
    let over = false;
    void sending.then(() => (over = true));
    const isOver = (): boolean => over && node.transport.stats().queuedOutMessages === 0;
    for (let i = 0; !isOver(); i++) {
      const socket = await listener.socket(i);
      socket.write(helloOf("b"));
      await socket.frame();
      // Reads a part of what comes, and goes, often in the middle of a frame.
      const enough = (2 + (i % 7)) * 30 * KIB;
      await until(() => socket.received.length > enough || socket.closed || isOver(), "a part of what comes");
      socket.pause();
      for (let next = wholeFrame(socket.received); next !== null; next = wholeFrame(socket.received)) {
        if (next.length >= 16) got.push(numberOf(next));
        socket.received = socket.received.subarray(4 + next.length);
      }
      socket.terminate();
    }
    // A peer of another make acknowledges nothing, so what the kernel had taken at its end is lost; but nothing comes twice,
    // and nothing out of order.
    for (let i = 1; i < got.length; i++) expect(got[i]).toBeGreaterThan(got[i - 1] ?? 0);
    expect(got.length).toBeGreaterThan(100);
    expect(new Set(got).size).toBe(got.length);
  }, 10_000);

  test("and never survives one message gets those behind it; that one is given up, and its sender told", async () => {
    await using net = new Net({
      limits: { reconnectMinMillis: 10, reconnectMaxMillis: 20, frameBytes: 64 * MIB },
    });
    using listener = new RawListener();
    const node = await net.node("node", { peers: { b: listener.address } });
    // More than the kernel's buffers take.
    const poison = node.transport.send("b", messageOf(40 * MIB, 0));
    poison.catch(() => {});
    const next = node.transport.send("b", messageOf(64, 1));
    for (let i = 0; i < 3; i++) {
      const socket = await listener.socket(i);
      socket.write(helloOf("b"));
      await until(() => socket.received.length > 50 * KIB || socket.closed, "the middle of the message");
      socket.terminate();
    }
    const error = await failureOf(poison);
    expect([error.code, error.message]).toEqual([
      "ERR_ZAP_CONNECTION_LOST",
      expect.stringContaining("in the middle of one message"),
    ]);
    const socket = await listener.socket(3);
    socket.write(helloOf("b"));
    await socket.frame();
    expect(numberOf(await socket.message())).toBe(1);
    await within(next, "the next send");
    expect(node.transport.stats()).toMatchObject({ undelivered: 0, queuedOutBytes: 0, queuedOutMessages: 0 });
  });

  test("is dialled at once when somebody wants to send, however long the pause", async () => {
    await using net = new Net();
    const [address] = freeAddresses(1);
    const limits = { reconnectMinMillis: 20, reconnectMaxMillis: 60_000, sendMillis: 3_000 };
    const a = await net.node("a", { limits, peers: { b: address ?? "" } });
    await Bun.sleep(800);
    const b = await net.node("b", { listen: address ?? "" });
    await within(a.transport.send("b", messageOf(64, 1)), "the send", 2_500);
    expect(numberOf((await b.recv()).message)).toBe(1);
  });
});

describe.if(process.platform === "linux")("a host that swallows every attempt to connect", () => {
  test("fails connect and send in time, is reported, and is reached soon when it comes back", async () => {
    await using net = new Net();
    await using child = await swallower(net);
    const limits = { sendMillis: 400, handshakeMillis: 300, reconnectMinMillis: 20, reconnectMaxMillis: 100 };
    const node = await net.node("node", { limits, peers: { far: child.address } });
    const error = await failureOf(node.transport.connect(child.address), 1_000);
    expect([error.code, error.message]).toEqual([
      "ERR_ZAP_PEER_UNREACHABLE",
      expect.stringContaining(child.address),
    ]);
    expect((await failureOf(node.transport.send("far", messageOf(64)), 1_000)).code).toBe(
      "ERR_ZAP_PEER_UNREACHABLE",
    );
    // The kernel goes on trying for two minutes; who runs the node wants to know now.
    expect(await node.untilError("ERR_ZAP_PEER_UNREACHABLE", "far", 1_000)).toContain(child.address);
    child.thaw();
    await until(() => node.transport.peers().includes("far"), "the peer to be reached");
    await node.send("far", messageOf(64));
  }, 10_000);
});
