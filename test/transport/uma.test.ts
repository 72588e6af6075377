/** The `uma` transport on hosts whose GPU is a double: opened as `pick` opens it, and what it leaves behind. */
import { afterAll, describe, expect, test } from "bun:test";
import { MessageError, NotAvailableError } from "../../lib/errors/index.ts";
import { checkHeaders } from "../../lib/kernels/index.ts";
import { openDefault } from "../../lib/transport/default.ts";
import type { Transport, TransportEvent, TransportOptions } from "../../lib/transport/index.ts";
import { openUma } from "../../lib/transport/uma.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { DoubleHost, type Behaviour, type Vendor } from "../support/double-host.ts";
import { isMessage, messageOf } from "../support/messages.ts";
import { noNative } from "../support/native.ts";
import { failureOf, until, within } from "../support/wait.ts";

afterAll(forgetHosts);

const SELECTION = { name: "uma", reason: "a test", tried: [] } as const;
const MIB = 1024 ** 2;
/** A double's report of a device that was let go of with nothing left behind. */
const CLEAN = /^release (?!.*=[1-9]).*faults=0$/;

async function openOn(
  on: DoubleHost,
  nodeId: string,
  options: TransportOptions = {},
  env: Record<string, string> = {},
): Promise<Transport> {
  const host = { ...on.host, env: { ...on.host.env, ZAP_UMA_POOL_BYTES: String(128 * MIB), ...env } };
  return openUma({ nodeId, listen: "127.0.0.1:0", onEvent: () => {}, ...options }, SELECTION, host);
}

describe.skipIf(noNative || process.platform !== "linux")("the uma transport", () => {
  for (const vendor of ["cuda", "hip", "metal"] as const) {
    test(`receives into ${vendor} memory from default and uma peers, and sends to them`, async () => {
      const on = new DoubleHost(vendor);
      const node = await openOn(on, "node");
      const peers = [
        await openDefault({ nodeId: "heap" }, { name: "default", reason: "a test", tried: [] }),
        await openOn(on, "other"),
      ];
      expect(node.name).toBe("uma");
      expect(node.caps).toEqual({ gpuResident: true, zeroCopy: true, minLatencyMicros: 20 });
      expect(node.poolBytes).toBe(128 * MIB);
      for (const peer of peers) {
        await within(peer.connect(node.addresses[0]!), "connect");
        for (const [n, bytes] of [16, 4_096, 70_000, 2 * MIB].entries()) {
          await peer.send("node", messageOf(bytes, n));
          const envelope = await within(node.recv(), `message ${n} of ${peer.nodeId}`);
          expect([envelope.peer, isMessage(envelope.message, n)]).toEqual([peer.nodeId, true]);
          expect(envelope.buffer?.devicePtr).toBeGreaterThan(0n);
          envelope.release();
          await node.send(peer.nodeId, messageOf(bytes, n));
          const answer = await within(peer.recv(), "the answer");
          expect(answer.message.length).toBe(bytes);
          answer.release();
        }
      }
      for (const each of [...peers, node])
        expect(await each.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
      await until(() => on.reported().length > 0, "the device to be let go of");
      for (const line of on.reported()) expect(line).toMatch(CLEAN);
    });
  }

  test("hands out buffers of the device's memory, and keeps them past its end", async () => {
    const on = new DoubleHost("cuda");
    const node = await openOn(on, "node");
    const buffer = await node.allocBuffer(5_000);
    expect([buffer.bytes.length, buffer.owner]).toEqual([5_000, "cpu"]);
    buffer.bytes.fill(7);
    await buffer.handOver("gpu");
    expect(buffer.owner).toBe("gpu");
    await buffer.handOver("cpu");
    const quick = node.tryAllocBuffer(100);
    expect(quick?.devicePtr).not.toBe(buffer.devicePtr);
    quick?.release();
    expect(await failureOf(node.allocBuffer(129 * MIB))).toMatchObject({ code: "ERR_ZAP_POOL" });
    expect(await node.close()).toEqual({ undelivered: 0, unread: 0, buffers: 1 });
    expect(on.reported()).toEqual([]);
    expect(buffer.bytes.every((byte) => byte === 7)).toBe(true);
    buffer.release();
    await until(() => on.reported().length > 0, "the device to be let go of");
    expect(on.reported().join()).toMatch(CLEAN);
  });

  test("gives up everything that it opened where it cannot listen", async () => {
    const on = new DoubleHost("cuda");
    const error = await failureOf(openOn(on, "node", { listen: "192.0.2.1:1" }));
    expect(error).toMatchObject({ code: "ERR_ZAP_ADDRESS" });
    expect(on.reported().join()).toMatch(CLEAN);
  });

  const FAILURES: readonly [string, Vendor, Behaviour, string][] = [
    ["no device", "cuda", { devices: 0 }, "device"],
    ["a driver that hangs", "cuda", { "hang.cuInit": 1 }, "cuInit"],
    [
      "a context that cannot be had",
      "cuda",
      { "fail.cuDevicePrimaryCtxRetain": 2 },
      "cuDevicePrimaryCtxRetain",
    ],
    ["no device", "hip", { devices: 0 }, "device"],
    ["a driver that hangs", "hip", { "hang.hipInit": 1 }, "hipInit"],
    ["no device", "metal", { devices: 0 }, "device"],
  ];
  for (const [what, vendor, behaviour, word] of FAILURES) {
    test(`is not available where ${vendor} has ${what}`, async () => {
      const on = new DoubleHost(vendor, behaviour);
      const error = await failureOf(openOn(on, "node", {}, { ZAP_DEVICE_MILLIS: "300" }));
      expect(error).toBeInstanceOf(NotAvailableError);
      expect(error.message).toContain(word);
    });
  }

  test("goes on with the memory that it has when the device runs out of it, and tells the peers by reading no more", async () => {
    // Enough for the stream slab's region and a little more.
    const on = new DoubleHost("cuda", { memory: 24 * MIB });
    const node = await openOn(on, "node");
    const peer = await openDefault({ nodeId: "heap" }, { name: "default", reason: "a test", tried: [] });
    await within(peer.connect(node.addresses[0]!), "connect");
    const sending = (async () => {
      for (let n = 0; n < 80; n++) await peer.send("node", messageOf(900_000, n));
    })();
    const held = [];
    for (let n = 0; n < 80; n++) {
      const envelope = await within(node.recv(), `message ${n}`);
      expect(isMessage(envelope.message, n)).toBe(true);
      held.push(envelope);
      if (held.length === 12) held.shift()!.release();
    }
    await sending;
    for (const envelope of held) envelope.release();
    await peer.close();
    expect(await node.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    expect(on.reported().join()).toMatch(CLEAN);
  }, 20_000);

  test("ends connections and says why when the device fails for good", async () => {
    const on = new DoubleHost("cuda", { "fail.cuMemAllocManaged": 2 });
    const events: TransportEvent[] = [];
    const node = await openOn(on, "node", { onEvent: (event) => void events.push(event) });
    const peer = await openDefault(
      { nodeId: "heap", onEvent: () => {} },
      { name: "default", reason: "a test", tried: [] },
    );
    await within(peer.connect(node.addresses[0]!), "connect");
    await peer.send("node", messageOf(100));
    const failed = () =>
      events.find((event) => event.type === "error" && event.error.message.includes("cuMemAllocManaged"));
    await until(() => failed() !== undefined, "the error");
    await Promise.all([peer.close(), node.close()]);
    expect(on.reported().join()).toMatch(CLEAN);
  });

  test("checks received headers on the device, where they lie", async () => {
    const on = new DoubleHost("cuda");
    const node = await openOn(on, "node", { versions: [1, 2] });
    const peer = await openDefault(
      { nodeId: "heap", versions: [1, 2] },
      { name: "default", reason: "a test", tried: [] },
    );
    await within(peer.connect(node.addresses[0]!), "connect");
    const envelopes = [];
    for (const [n, version] of [1, 2, 1].entries()) {
      await peer.send("node", messageOf(1_000, n, { version }));
      envelopes.push(await within(node.recv(), "a message"));
    }
    const buffers = envelopes.map((envelope) => envelope.buffer!);
    expect(await checkHeaders(buffers)).toEqual({ verdicts: Uint8Array.of(0, 3, 0), where: "cuda" });
    expect(await checkHeaders(buffers, { versions: [1, 2] })).toEqual({
      verdicts: Uint8Array.of(0, 0, 0),
      where: "cuda",
    });
    for (const envelope of envelopes) envelope.release();
    expect(await failureOf(checkHeaders(buffers))).toMatchObject({ code: "ERR_ZAP_CLOSED" });
    await peer.close();
    expect(await node.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
    expect(on.reported().join()).toMatch(CLEAN);
  });

  test("never receives into memory that a kernel may still read", async () => {
    const on = new DoubleHost("cuda", { "fail.cuEventQuery": 600 });
    const events: TransportEvent[] = [];
    const limits = { closeMillis: 500 };
    const options = { limits, onEvent: (event: TransportEvent) => void events.push(event) };
    const node = await openOn(on, "node", options, { ZAP_DEVICE_MILLIS: "150" });
    const selection = { name: "default", reason: "a test", tried: [] } as const;
    const peer = await openDefault({ nodeId: "heap", limits, onEvent: () => {} }, selection);
    await within(peer.connect(node.addresses[0]!), "connect");
    await peer.send("node", messageOf(100, 1));
    const first = await within(node.recv(), "the first message");
    const where = first.buffer!.devicePtr;
    expect((await failureOf(checkHeaders([first.buffer!]))).message).toContain("150 ms");
    first.release();
    for (let n = 2; n < 20; n++) {
      await peer.send("node", messageOf(100, n));
      const envelope = await within(node.recv(), `message ${n}`);
      expect(isMessage(envelope.message, n)).toBe(true);
      expect(envelope.buffer!.devicePtr).not.toBe(where);
      envelope.release();
    }
    const lost = () => events.find((event) => event.type === "error" && event.error.code === "ERR_ZAP_POOL");
    await until(() => lost() !== undefined, "the lost memory to be reported");
    await Promise.all([peer.close(), node.close().catch(() => {})]);
  }, 15_000);

  test("checks what it sends as every transport does", async () => {
    const on = new DoubleHost("cuda");
    await using node = await openOn(on, "node");
    expect(await failureOf(node.send("nobody", new Uint8Array(20)))).toBeInstanceOf(MessageError);
    expect(await failureOf(node.send("nobody", messageOf(20)))).toMatchObject({
      code: "ERR_ZAP_UNKNOWN_PEER",
    });
  });
});
