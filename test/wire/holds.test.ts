/** Rule 3 of docs/wire-sockets.md: what a `connect` that nobody answers may cost the peers that dial in meanwhile. */
import { describe, expect, test } from "bun:test";
import { helloOf, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { RawListener } from "../support/raw.ts";
import { failureOf, isSettled, until, within } from "../support/wait.ts";

/** Any of these that ended a hold would do so far too late. */
const PATIENT = { limits: { handshakeMillis: 60_000, sendMillis: 60_000, closeMillis: 60_000 } };

/** A `connect` to an address that takes the connection and says nothing; the hello is out. */
async function muteConnect(
  node: Node,
  listener: RawListener,
  index = 0,
): Promise<{ failed: Promise<Error> }> {
  const failed = failureOf(node.transport.connect(listener.address), 8_000);
  const socket = await listener.socket(index);
  await until(() => socket.received.length === 84, "the hello to be out");
  return { failed };
}

describe.concurrent("an address that takes our connection and stays mute", () => {
  for (const [nodeId, guestId] of [
    ["a", "b"],
    ["b", "a"],
  ] as const) {
    test(`keeps ${guestId}, which dials in, waiting about a second at the most, and connect rejects`, async () => {
      await using net = new Net(PATIENT);
      using mute = new RawListener();
      const node = await net.node(nodeId);
      const { failed } = await muteConnect(node, mute);
      const guest = await net.node(guestId);
      expect(await within(guest.transport.connect(node.address), "the guest's connect")).toBe(nodeId);
      for (let n = 0; n < 3; n++) await guest.send(nodeId, messageOf(64, n));
      const back = node.transport.send(guestId, messageOf(64, 7));
      // Held: it might be the node that we are dialling.
      expect([await isSettled(back), node.transport.tryRecv()]).toEqual([false, null]);
      for (let n = 0; n < 3; n++) expect(numberOf((await node.recv(2_500)).message)).toBe(n);
      expect(numberOf((await guest.recv()).message)).toBe(7);
      await back;
      const error = (await failed) as Error & { code?: string };
      expect([error.code, error.message]).toEqual([
        "ERR_ZAP_HANDSHAKE",
        expect.stringContaining(mute.address),
      ]);
      expect([...node.troubles, ...guest.troubles]).toEqual([]);
      expect(node.transport.stats()).toMatchObject({ connections: 1, handshakes: 0 });
    });
  }

  test("does not keep a guest's close() waiting: nothing is lost", async () => {
    await using net = new Net(PATIENT);
    using mute = new RawListener();
    const node = await net.node("node");
    await muteConnect(node, mute);
    const guest = await net.node("guest", { limits: { ...PATIENT.limits, closeMillis: 3_000 } });
    await guest.transport.connect(node.address);
    await guest.send("node", messageOf(64, 3));
    expect(await guest.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    expect(numberOf((await node.recv()).message)).toBe(3);
    expect([...node.troubles, ...guest.troubles]).toEqual([]);
  });

  test("is given up together with others like it, and the guests that came meanwhile all go on", async () => {
    await using net = new Net(PATIENT);
    using mute = new RawListener();
    const node = await net.node("node");
    const connects: { failed: Promise<Error> }[] = [];
    for (let i = 0; i < 5; i++) connects.push(await muteConnect(node, mute, i));
    const guests = await Promise.all([0, 1, 2, 3].map((i) => net.node(`guest-${i}`)));
    for (const guest of guests) {
      await guest.transport.connect(node.address);
      await guest.sendNumbered("node", 5);
    }
    expect((await node.takeNumbered(20, 2_500)).size).toBe(4);
    for (const { failed } of connects) expect((await failed).name).toBe("HandshakeError");
  });

  test("but comes to life in time is connected with, and the guest goes on at once", async () => {
    await using net = new Net(PATIENT);
    using slow = new RawListener();
    const node = await net.node("node");
    const connecting = node.transport.connect(slow.address);
    const socket = await slow.socket();
    await socket.frame();
    const guest = await net.node("guest");
    await guest.transport.connect(node.address);
    await guest.send("node", messageOf(64, 4));
    await Bun.sleep(20);
    expect(node.transport.tryRecv()).toBeNull();
    socket.write(helloOf("slow", 1));
    expect(numberOf((await node.recv(800)).message)).toBe(4);
    expect(await within(connecting, "connect")).toBe("slow");
    expect(node.transport.peers().toSorted()).toEqual(["guest", "slow"]);
  });

  test("keeps its time where nobody waits for it", async () => {
    await using net = new Net(PATIENT);
    using slow = new RawListener();
    const node = await net.node("node");
    const connecting = node.transport.connect(slow.address);
    const socket = await slow.socket();
    await socket.frame();
    await Bun.sleep(1_300);
    expect(await isSettled(connecting)).toBe(false);
    socket.write(helloOf("slow", 1));
    expect(await within(connecting, "connect")).toBe("slow");
  });

  test("does not touch peers that were connected before", async () => {
    await using net = new Net(PATIENT);
    using mute = new RawListener();
    const [node, friend] = await net.pair();
    await muteConnect(node, mute);
    for (let n = 0; n < 3; n++) {
      await friend.send("a", messageOf(64, n));
      expect(numberOf((await node.recv(800)).message)).toBe(n);
    }
  });
});
