import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { helloOf, messageOf, numberOf } from "../support/messages.ts";
import { Net, type Node } from "../support/nodes.ts";
import { until, within } from "../support/wait.ts";

const MIB = 1024 * 1024;
const DESCRIPTORS = ["/proc/self/fd", "/dev/fd"].find((path) => existsSync(path));

function openDescriptors(): number {
  return DESCRIPTORS === undefined ? 0 : readdirSync(DESCRIPTORS).length;
}

async function settledMemory(): Promise<number> {
  for (let i = 0; i < 5; i++) {
    await Bun.sleep(10);
    Bun.gc(true);
  }
  return process.memoryUsage.rss();
}

describe("500 peers at once", () => {
  test("all get in, and each sends and receives", async () => {
    await using net = new Net();
    const hub = await net.node("hub");
    const peers = await Promise.all(
      Array.from({ length: 500 }, (_, i) => net.node(`peer-${i}`, { listen: [] })),
    );
    await within(
      Promise.all(peers.map((peer) => peer.transport.connect(hub.address))),
      "all to connect",
      10_000,
    );
    await hub.untilPeers(500);
    expect(hub.transport.stats().connections).toBe(500);
    const life = async (peer: Node): Promise<void> => {
      await peer.sendNumbered("hub", 10, 300);
      expect(numberOf((await peer.recv(10_000)).message)).toBe(1);
    };
    const answers = async (): Promise<void> => {
      const counts = await hub.takeNumbered(5_000, 10_000);
      expect(counts.size).toBe(500);
      await Promise.all(peers.map((peer) => hub.send(peer.id, messageOf(300, 1))));
    };
    await Promise.all([...peers.map(life), answers()]);
    expect([hub, ...peers].flatMap((node) => node.troubles)).toEqual([]);
    await Promise.all(peers.map((peer) => peer.close()));
    await hub.untilPeers(0);
  }, 30_000);
});

describe("10,000 connects", () => {
  /** `count` peers come, say something, and go; 50 at a time. */
  async function visitors(count: number, visit: (i: number) => Promise<void>): Promise<void> {
    for (let i = 0; i < count; i += 50) {
      await within(Promise.all(Array.from({ length: 50 }, (_, j) => visit(i + j))), `visitors from ${i} on`);
    }
  }

  test("one after another leave descriptors and memory as they were", async () => {
    await using net = new Net();
    const hub = await net.node("hub");
    let taken = 0;
    const taking = (async () => {
      for await (const envelope of hub.transport) {
        taken++;
        envelope.release();
      }
    })();
    const nodes = async (i: number): Promise<void> => {
      await using own = new Net();
      const peer = await own.node(`node-${i}`, { listen: [] });
      await peer.transport.connect(hub.address);
      await peer.send("hub", messageOf(64, i));
    };
    /** Bare ones leave in all ways there are: in order, abruptly, in the middle of a frame, before their hello. */
    const bare = async (i: number): Promise<void> => {
      await using own = new Net();
      const raw = await own.raw(hub);
      if (i % 4 === 3) return raw.write(helloOf(`bare-${i}`).subarray(0, 30));
      await raw.greet(`bare-${i}`, i % 2);
      raw.writeFrame(messageOf(64, i));
      if (i % 4 === 2) raw.write(messageOf(64).subarray(0, 10));
      if (i % 4 === 0) {
        raw.shutdown();
        await raw.untilClosed();
      }
    };
    const quiet = (): Promise<void> =>
      until(() => {
        const { connections, handshakes } = hub.transport.stats();
        return connections + handshakes === 0;
      }, "all to be gone");
    await visitors(1_000, (i) => (i % 2 === 0 ? nodes(i) : bare(i)));
    await quiet();
    hub.events.length = 0;
    const [descriptors, memory] = [openDescriptors(), await settledMemory()];
    await visitors(4_500, nodes);
    await visitors(4_500, bare);
    await quiet();
    hub.events.length = 0;
    await until(() => openDescriptors() <= descriptors + 5, "descriptors to be closed");
    expect((await settledMemory()) - memory).toBeLessThan(48 * MIB);
    expect(hub.transport.stats()).toMatchObject({
      ...{ queuedInBytes: 0, queuedInMessages: 0, queuedOutBytes: 0, queuedOutMessages: 0, waitingSends: 0 },
    });
    expect(taken).toBeGreaterThan(4_500);
    await hub.close();
    await taking;
  }, 60_000);

  test("to a node that turns them away leave nothing behind either", async () => {
    await using net = new Net();
    const hub = await net.node("hub", { allow: ["friend"] });
    const descriptors = openDescriptors();
    await visitors(1_000, async (i) => {
      await using own = new Net();
      const raw = await own.raw(hub);
      raw.write(helloOf(`stranger-${i}`));
      await raw.untilClosed();
    });
    await until(() => openDescriptors() <= descriptors + 2, "descriptors to be closed");
    expect(hub.transport.stats()).toMatchObject({
      connections: 0,
      handshakes: 0,
      drops: { handshake: 1_000 },
    });
  }, 20_000);
});

describe("a transport that is opened and closed 300 times", () => {
  test("leaves no descriptor behind, and lets its process end", async () => {
    const before = openDescriptors();
    for (let i = 0; i < 300; i++) {
      await using net = new Net();
      await net.node("node", { listen: ["127.0.0.1:0", "[::1]:0"] });
    }
    await until(() => openDescriptors() <= before + 2, "descriptors to be closed");
    const script = `
      import { pick } from ${JSON.stringify(new URL("../../lib/index.ts", import.meta.url).pathname)};
      const a = await pick("default", { nodeId: "a", listen: "127.0.0.1:0" });
      const b = await pick("default", { nodeId: "b", peers: { a: a.addresses[0], gone: "127.0.0.1:1" } });
      const message = new Uint8Array([0x5a, 0x41, 0x50, 0, 1, 0, 0, 1, 0, 0, 0, 0, 16, 0, 0, 0]);
      await b.send("a", message);
      (await a.recv()).release();
      await Promise.all([a.close(), b.close()]);`;
    const child = Bun.spawn([process.execPath, "-e", script], {
      env: { ...process.env, ZAP_TRANSPORT_QUIET: "1" },
    });
    expect(await within(child.exited, "the process to end by itself", 3_000)).toBe(0);
  }, 10_000);
});
