/** Receiving into slabs: what differs from the heap. Everything else is in the other tests of this folder, which run over slabs too. */
import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import type { TransportOptions } from "../../lib/transport/index.ts";
import { Authority } from "../support/certificates.ts";
import { frameOf, isMessage, joined, messageOf, numberOf } from "../support/messages.ts";
import { RawSocket } from "../support/raw.ts";
import { noNative } from "../support/native.ts";
import { openCudaShim } from "../support/slab-transport.ts";
import { MIB, SETTINGS, Slabs, SMALL } from "./slabs-kit.ts";
import { failureOf, isSettled, until, within } from "../support/wait.ts";

const openFiles = (): number => readdirSync("/proc/self/fd").length;

describe.skipIf(noNative)("a received message", () => {
  for (const bytes of [16, 256, 4_096, 100_000, MIB, 3 * MIB]) {
    test(`of ${bytes} B lies in a slab: its buffer is the message, released with it`, async () => {
      await using slabs = new Slabs();
      const [a, b] = await slabs.pair();
      await a.send("b", messageOf(bytes, 7));
      const envelope = await within(b.recv(), "the message");
      const { buffer, message } = envelope;
      expect(message.length).toBe(bytes);
      expect(isMessage(message, 7)).toBe(true);
      expect(buffer!.bytes.length).toBe(bytes);
      expect(buffer!.bytes.buffer).toBe(message.buffer);
      expect(buffer!.bytes.byteOffset).toBe(message.byteOffset);
      // No device here.
      expect(buffer!.devicePtr).toBeNull();
      buffer!.release();
      expect(() => buffer!.bytes).toThrow("released");
      expect(() => envelope.message).toThrow("released");
      envelope.release();
      expect(await b.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    });
  }

  test("is not copied on plaintext connections; under TLS it is", async () => {
    const authority = await Authority.make();
    for (const secure of [false, true]) {
      await using slabs = new Slabs();
      const of = async (name: string): Promise<TransportOptions> =>
        secure ? { tls: await authority.issue({ cn: name, dns: [name] }) } : {};
      const a = await slabs.open("a", await of("a"));
      const b = await slabs.open("b", await of("b"));
      expect(b.caps.zeroCopy).toBe(!secure);
      await within(a.connect(b.addresses[0]!), "connect");
      const bytes = 300_000;
      const [before, count] = [b.stats().bytesCopied, 40];
      const sending = (async () => {
        for (let n = 0; n < count; n++) await a.send("b", messageOf(bytes, n));
      })();
      for (let n = 0; n < count; n++) {
        const envelope = await within(b.recv(), `message ${n}`);
        expect(isMessage(envelope.message, n)).toBe(true);
        expect(envelope.buffer).not.toBeNull();
        envelope.release();
      }
      await sending;
      const copied = (b.stats().bytesCopied - before) / (bytes * count);
      // Bun's own copy out of its receive buffer, and ours into the slab.
      if (secure) expect(copied).toBeGreaterThanOrEqual(2);
      else expect(copied).toBeLessThan(0.02);
    }
  });

  test("that was sent before the far end broke the connection is delivered", async () => {
    await using slabs = new Slabs();
    const b = await slabs.open("b");
    const raw = await RawSocket.connect(b.addresses[0]!);
    await raw.greet("raw", 0);
    raw.write(joined(...Array.from({ length: 50 }, (_, n) => frameOf(messageOf(1_000, n)))));
    await Bun.sleep(20);
    raw.terminate();
    for (let n = 0; n < 50; n++) {
      const envelope = await within(b.recv(), `message ${n}`);
      expect(numberOf(envelope.message)).toBe(n);
      envelope.release();
    }
  });
});

describe.skipIf(noNative)("a pool that is full of messages that nobody releases", () => {
  const settings = { poolBytes: 8 * MIB, debug: false };

  test("stops the peer; each release lets it go on, and nothing is lost", async () => {
    await using slabs = new Slabs();
    const [a, b] = await slabs.pair({ limits: SMALL }, settings);
    const count = 60;
    const sending = (async () => {
      for (let n = 0; n < count; n++) await a.send("b", messageOf(700_000, n));
    })();
    const held = [];
    for (let n = 0; n < 5; n++) held.push(await within(b.recv(), `message ${n}`));
    // Nobody releases: what is left of the pool fills up, and then it is the sender who waits.
    await Bun.sleep(200);
    expect(await isSettled(sending)).toBe(false);
    let next = 5;
    while (next < count) {
      held.shift()?.release();
      const envelope = await within(b.recv(), `message ${next}`);
      expect(isMessage(envelope.message, next)).toBe(true);
      held.push(envelope);
      next++;
    }
    await sending;
    for (const envelope of held) envelope.release();
    expect(await b.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
  }, 20_000);

  test("does not keep other work from the connection: it can send, and close", async () => {
    await using slabs = new Slabs();
    const [a, b] = await slabs.pair({ limits: { ...SMALL, closeMillis: 500 } }, settings);
    const sending = (async () => {
      for (let n = 0; n < 60; n++) await a.send("b", messageOf(700_000, n));
    })().catch(() => {});
    const held = await within(b.recv(), "a message");
    await Bun.sleep(100);
    await b.send("a", messageOf(64, 3));
    const answer = await within(a.recv(), "the answer");
    expect(numberOf(answer.message)).toBe(3);
    answer.release();
    const report = await within(b.close(), "close", 3_000);
    expect(report.buffers).toBe(1);
    // Still there: nobody frees under a reader.
    expect(isMessage(held.message, 0)).toBe(true);
    held.release();
    await a.close();
    await sending;
  }, 10_000);

  test("is refused where the largest frame could not fit beside the rest", async () => {
    await using slabs = new Slabs();
    const error = await failureOf(slabs.open("b", {}, { poolBytes: 8 * MIB, debug: false }));
    expect(error).toMatchObject({ code: "ERR_ZAP_CONFIG" });
    expect(error.message).toContain("ZAP_UMA_POOL_BYTES");
    expect(error.message).toContain("limits.frameBytes");
  });
});

describe.skipIf(noNative)("debug mode", () => {
  test("empties the views of a released message, and nobody else's", async () => {
    await using slabs = new Slabs();
    const [a, b] = await slabs.pair({}, { ...SETTINGS, debug: true });
    for (let n = 0; n < 3; n++) await a.send("b", messageOf(100, n));
    const [first, second, third] = [await b.recv(), await b.recv(), await b.recv()];
    const views = [first, second, third].map((envelope) => envelope.message);
    expect(views.map((view) => view.length)).toEqual([100, 100, 100]);
    second.release();
    expect(views.map((view) => view.length)).toEqual([100, 0, 100]);
    expect([isMessage(views[0]!, 0), isMessage(views[2]!, 2)]).toEqual([true, true]);
    first.release();
    third.buffer!.release();
    expect(views.map((view) => view.length)).toEqual([0, 0, 0]);
  });
});

describe.skipIf(noNative)("what native receiving holds", () => {
  test("is closed with the connection, and with the transport", async () => {
    const { call } = await openCudaShim();
    const [files, live] = [openFiles(), call.live()];
    {
      await using slabs = new Slabs();
      const b = await slabs.open("b");
      const opened = openFiles();
      for (let i = 0; i < 20; i++) {
        const raw = await RawSocket.connect(b.addresses[0]!);
        await raw.greet(`raw-${i}`, 0);
        raw.write(frameOf(messageOf(64, i)));
        (await within(b.recv(), "a message")).release();
        if (i % 2 === 0) raw.terminate();
        else raw.shutdown();
        await until(() => b.peers().length === 0, "it to be gone");
      }
      await until(() => openFiles() <= opened, `no more than ${opened} files to be open`);
      // The poller is left, and nothing that it watches.
      expect(call.live()).toBe(live + 1);
    }
    await until(() => openFiles() <= files, `no more than ${files} files to be open`);
    expect(call.live()).toBe(live);
  });

  test("does not keep a process alive once it is closed", async () => {
    const script = `
      import { openOverSlabs } from ${JSON.stringify(`${import.meta.dir}/../support/slab-transport.ts`)};
      await (await openOverSlabs({ nodeId: "idle", listen: "127.0.0.1:0" })).close();
      console.log("closed");
    `;
    const child = Bun.spawn([process.execPath, "-e", script], { timeout: 5_000, stderr: "inherit" });
    expect(await child.stdout.text()).toBe("closed\n");
    expect(await child.exited).toBe(0);
  });
});
