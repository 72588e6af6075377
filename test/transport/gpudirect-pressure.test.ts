/** The `gpudirect` transport when memory is short: whoever may go on does, and nothing breaks. Over doubles of CUDA and libibverbs. */
import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import type { Envelope, Transport } from "../../lib/transport/index.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { messageOf } from "../support/messages.ts";
import { noNative } from "../support/native.ts";
import { Fabric } from "../support/rdma-fabric.ts";
import { failureOf, until, within } from "../support/wait.ts";

afterAll(forgetHosts);

const MIB = 2 ** 20;
const LARGE = 100_000;
/** When nothing has come for so long, nothing will. */
const QUIET_MILLIS = 800;
const LIMIT = 60_000;
const none = noNative || process.platform !== "linux";

let shared: Fabric | null = null;
const fabric = (): Fabric => (shared ??= new Fabric());

type Env = Record<string, string>;
const open = (nodeId: string, device: string, env: Env = {}): Promise<Transport> =>
  fabric().open(
    nodeId,
    device,
    { ZAP_GPUDIRECT_METHOD: "page-locked", ...env },
    { limits: { closeMillis: 1_000 } },
  );

/** Sends small messages for as long as it goes. */
async function pour(from: Transport, to: string): Promise<void> {
  try {
    for (let number = 0; ; number++) await from.send(to, messageOf(100, number));
  } catch {
    // It was closed.
  }
}

/** Takes all, and lets go of it. */
async function sink(at: Transport): Promise<void> {
  for await (const envelope of at) envelope.release();
}

/** Takes what comes until nothing does, and keeps it. */
async function hoard(at: Transport): Promise<Envelope[]> {
  const held: Envelope[] = [];
  for (let movedAt = performance.now(); performance.now() - movedAt < QUIET_MILLIS;) {
    const envelope = at.tryRecv();
    if (envelope === null) await Bun.sleep(1);
    else {
      held.push(envelope);
      movedAt = performance.now();
    }
  }
  return held;
}

/** Sends `count` large messages at once, each where it lies, and waits until all of them have come back. */
async function sendLarge(from: Transport, to: string, count: number): Promise<void> {
  const buffers = await Promise.all(Array.from({ length: count }, () => from.allocBuffer(LARGE)));
  for (const buffer of buffers) buffer.bytes.set(messageOf(LARGE, 1));
  await within(Promise.all(buffers.map(({ bytes }) => from.send(to, bytes))), `${count} to ${to}`, 10_000);
  for (const buffer of buffers) buffer.release();
}

async function closeAll(...transports: Transport[]): Promise<void> {
  for (const transport of transports) await transport.close();
  await fabric().expectNothingLeft();
}

describe.skipIf(none)("gpudirect with little memory left", () => {
  beforeEach(() => fabric().reset());

  for (const consumer of ["holds all that comes", "takes nothing"] as const)
    test(
      `large messages go and come back while the other way a consumer ${consumer}`,
      async () => {
        const hub = await open("hub", "double0");
        const far = await open("far", "double1");
        await far.connect(hub.addresses[0]!);
        const pouring = pour(far, "hub");
        const sinking = sink(far).catch(() => {});
        const held = consumer === "takes nothing" ? [] : await hoard(hub);
        if (consumer === "takes nothing") await Bun.sleep(QUIET_MILLIS);
        await sendLarge(hub, "far", 20);
        for (const envelope of held) envelope.release();
        await closeAll(far, hub);
        await Promise.all([pouring, sinking]);
      },
      LIMIT,
    );

  test(
    "what frees memory gets through to every peer, whoever else waits for slabs",
    async () => {
      const hub = await open("hub", "double0");
      const names = ["a", "b"];
      const peers = await Promise.all(names.map((name) => open(name, "double1")));
      for (const peer of peers) await peer.connect(hub.addresses[0]!);
      const running = peers.flatMap((peer) => [pour(peer, "hub"), sink(peer).catch(() => {})]);
      const held = await hoard(hub);
      for (const name of names) await sendLarge(hub, name, 20);
      for (const envelope of held) envelope.release();
      await closeAll(...peers, hub);
      await Promise.all(running);
    },
    LIMIT,
  );

  test(
    "a peer that came late and got few slabs goes on like the others",
    async () => {
      const hub = await open("hub", "double0", {
        ZAP_GPUDIRECT_RECEIVES: "1000",
        ZAP_GPUDIRECT_REGION_BYTES: String(152 * MIB),
      });
      const sinking = sink(hub).catch(() => {});
      const peers: Transport[] = [];
      for (const [before, name] of ["first", "second", "third"].entries()) {
        const peer = await open(name, "double1");
        peers.push(peer);
        // What is on its way has slabs as well, and with fewer than 16 no further peer is taken.
        await until(() => hub.stats().queuedInMessages === 0, "the consumer");
        await until(() => hub.stats().messagesIn === before * 2_000, "the messages of those before");
        await until(() => hub.stats().rdma!.buffersFree >= 64, "slabs");
        await peer.connect(hub.addresses[0]!);
        for (let number = 0; number < 2_000; number++)
          await within(peer.send("hub", messageOf(100, number)), `message ${number} of ${name}`, 5_000);
      }
      await until(() => hub.stats().messagesIn === 6_000, "all of them");
      await closeAll(...peers, hub);
      await sinking;
    },
    LIMIT,
  );

  test(
    "a consumer may hold all slabs but one beside those for control",
    async () => {
      const hub = await open("hub", "double0");
      const far = await open("far", "double1");
      await far.connect(hub.addresses[0]!);
      const slabs = hub.stats().rdma!.buffersFree + 64;
      const pouring = pour(far, "hub");
      const held: Envelope[] = [];
      for (const spare of [64, 20, 12, 9])
        for (let taken = 0; taken < slabs + 200; taken++) {
          while (held.length > slabs - spare) held.shift()!.release();
          held.push(await within(hub.recv(), `a message with ${spare} slabs left`, 5_000));
        }
      for (const envelope of held) envelope.release();
      await closeAll(far, hub);
      await pouring;
    },
    LIMIT,
  );

  test(
    "so many slabs that messages could run out before them break nothing",
    async () => {
      const tiny = { ZAP_GPUDIRECT_EAGER_BYTES: "256", ZAP_GPUDIRECT_REGION_BYTES: String(256 * MIB) };
      const hub = await open("hub", "double0", tiny);
      const far = await open("far", "double1", tiny);
      await far.connect(hub.addresses[0]!);
      const pouring = pour(far, "hub");
      const held = await hoard(hub);
      expect(held.length).toBeGreaterThan(40_000);
      expect(hub.peers()).toEqual(["far"]);
      for (const envelope of held) envelope.release();
      await closeAll(far, hub);
      await pouring;
    },
    LIMIT,
  );

  test(
    "no more peers are taken than the completion queue has room for, and they are told",
    async () => {
      fabric().set("completions", 700);
      const hub = await open("hub", "double0");
      const sinking = sink(hub).catch(() => {});
      const peers = await Promise.all(["a", "b", "c"].map((name) => open(name, "double1")));
      await peers[0]!.connect(hub.addresses[0]!);
      await peers[1]!.connect(hub.addresses[0]!);
      await failureOf(peers[2]!.connect(hub.addresses[0]!));
      for (const peer of peers.slice(0, 2))
        for (let number = 0; number < 400; number++) await peer.send("hub", messageOf(500, number));
      await until(() => hub.stats().messagesIn === 800, "all of them");
      await closeAll(...peers, hub);
      await sinking;
    },
    LIMIT,
  );
});
