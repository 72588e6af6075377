/** What goes wrong on one side stays there: memory that a user transferred away, messages that nobody releases, sockets that cannot be read natively. */
import { describe, expect, test } from "bun:test";
import { pollerVerbs, type PollerVerbs } from "../../lib/ffi/index.ts";
import { heapKind } from "../../lib/memory/index.ts";
import { openOver } from "../../lib/transport/uma.ts";
import type { TransportEvent } from "../../lib/transport/index.ts";
import { frameOf, isMessage, messageOf } from "../support/messages.ts";
import { noNative } from "../support/native.ts";
import { openCudaShim } from "../support/slab-transport.ts";
import { until, within } from "../support/wait.ts";
import { MIB, poolOf, SETTINGS, Slabs } from "./slabs-kit.ts";

describe.skipIf(noNative)("a message whose ArrayBuffer a user transferred away", () => {
  for (const debug of [false, true]) {
    test(`costs its memory and nobody else's messages${debug ? ", in debug mode" : ""}`, async () => {
      await using slabs = new Slabs();
      const node = await slabs.open("node", {}, { ...SETTINGS, debug });
      const [x, y] = [await slabs.raw(node, "x"), await slabs.raw(node, "y")];
      x.write(frameOf(messageOf(100, 1)));
      const taken = await within(node.recv(), "the message");
      for (const n of [2, 3]) y.write(frameOf(messageOf(100, n)));
      await until(() => node.stats().queuedInMessages === 2, "the others to be queued");
      const stolen = structuredClone(taken.message, { transfer: [taken.message.buffer as ArrayBuffer] });
      for (const n of [2, 3]) {
        const envelope = await within(node.recv(), `message ${n}`);
        // By either way to the bytes.
        expect(isMessage(n === 2 ? envelope.buffer!.bytes : envelope.message, n)).toBe(true);
        envelope.release();
      }
      taken.release();
      // Whatever y says now must come to lie elsewhere, however much it is.
      for (let n = 0; n < 30; n++) {
        y.write(frameOf(messageOf(100, 100 + n)));
        (await within(node.recv(), `message ${n}`)).release();
        expect(includes(new Uint8Array(stolen.buffer as ArrayBuffer), messageOf(100, 100 + n))).toBe(false);
      }
      const z = await slabs.raw(node, "z");
      for (const [n, peer] of [x, y, z].entries()) {
        peer.write(frameOf(messageOf(100, 10 + n)));
        const envelope = await within(node.recv(), `a message of ${"xyz"[n]}`);
        expect(isMessage(envelope.message, 10 + n)).toBe(true);
        envelope.release();
      }
      // Whoever has it now sees no message of anybody else.
      const shown = new Uint8Array(stolen.buffer as ArrayBuffer);
      expect([10, 11, 12].some((n) => includes(shown, messageOf(100, n)))).toBe(false);
      await node.close();
      await until(() => slabs.errors.some((text) => text.includes("transferred away")), "the report");
      expect(poolOf(node).stats()).toMatchObject({ buffers: 0, lostBytes: MIB });
    });
  }
});

function includes(all: Uint8Array, part: Uint8Array): boolean {
  return globalThis.Buffer.from(all.buffer as ArrayBuffer, all.byteOffset, all.length).includes(part);
}

describe.skipIf(noNative)("a message that nobody releases", () => {
  test("is reported with its peer, and so is the memory that is lost with it", async () => {
    await using slabs = new Slabs();
    const node = await slabs.open("node");
    const peer = await slabs.raw(node, "peer");
    await (async () => {
      peer.write(frameOf(messageOf(200_000, 1)));
      await within(node.recv(), "the message");
    })();
    const reported = (): boolean => {
      Bun.gc(true);
      const unreleased = slabs.events.some((event) => event.type === "unreleased" && event.peer === "peer");
      return (
        unreleased && slabs.errors.some((text) => /ERR_ZAP_POOL: 1 buffer was never released/.test(text))
      );
    };
    await until(reported, "both reports", 8_000);
  }, 10_000);
});

describe.skipIf(noNative)("a socket that the poller cannot take or wait for", () => {
  async function openWith(change: (verbs: PollerVerbs) => Partial<PollerVerbs>) {
    const verbs = pollerVerbs(await openCudaShim());
    const events: TransportEvent[] = [];
    const options = {
      nodeId: "node",
      listen: "127.0.0.1:0",
      limits: { closeMillis: 500 },
      onEvent: (e: TransportEvent) => void events.push(e),
    };
    const selection = { name: "uma", reason: "a test", tried: [] } as const;
    const node = await openOver(heapKind(), { ...verbs, ...change(verbs) }, SETTINGS, options, selection);
    return { node, events };
  }

  test("is read by Bun instead", async () => {
    await using slabs = new Slabs();
    const { node } = await openWith(() => ({ add: () => -10 }));
    const peer = await slabs.raw(node, "peer");
    for (let n = 0; n < 10; n++) peer.write(frameOf(messageOf(50_000, n)));
    for (let n = 0; n < 10; n++) {
      const envelope = await within(node.recv(), `message ${n}`);
      expect(isMessage(envelope.message, n)).toBe(true);
      expect(envelope.buffer).not.toBeNull();
      envelope.release();
    }
    await node.close();
  });

  test("ends with an error that says why, and the others go on", async () => {
    await using slabs = new Slabs();
    let spoilt = -1;
    const { node, events } = await openWith((verbs) => ({
      arm: (poller, slot) => (slot === spoilt ? -10 : verbs.arm(poller, slot)),
      add: (poller, fd) => {
        const slot = verbs.add(poller, fd);
        if (spoilt === -1) spoilt = slot;
        return slot;
      },
    }));
    const [bad, good] = [await slabs.raw(node, "bad"), await slabs.raw(node, "good")];
    bad.write(frameOf(messageOf(100, 1)));
    good.write(frameOf(messageOf(100, 2)));
    const envelope = await within(node.recv(), "the message");
    expect(envelope.peer).toBe("good");
    envelope.release();
    const error = () => events.find((event) => event.type === "error" && event.peer === "bad");
    await until(() => error() !== undefined, "the error");
    expect(error()).toMatchObject({ error: { code: "ERR_ZAP_CONNECTION_LOST" } });
    await bad.untilClosed();
    await node.close();
  });
});
