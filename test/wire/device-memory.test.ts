/** Received messages in a GPU's own memory, which the CPU cannot touch: over a double of CUDA, with the native end of the rings played here. */
import { afterAll, describe, expect, test } from "bun:test";
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { closeSync, writeSync } from "node:fs";
import { ClosedError, NotAvailableError, OwnerError, ShimError } from "../../lib/errors/index.ts";
import { RING, RING_ENTRY } from "../../lib/ffi/index.ts";
import { checkHeaders } from "../../lib/kernels/index.ts";
import {
  DeviceOwnKind,
  lockedKind,
  openDeviceMemory,
  type DeviceMemory,
  type DeviceRegion,
  type Region,
  type SlabBuffer,
} from "../../lib/memory/index.ts";
import { umaRuntime } from "../../lib/transport/probes/uma.ts";
import { Breather } from "../../lib/wire/common/breather.ts";
import type { NativeEngine } from "../../lib/wire/native/engine.ts";
import { NativeInbox } from "../../lib/wire/native/inbox.ts";
import { NodeMemory } from "../../lib/wire/native/memory.ts";
import { Outbox } from "../../lib/wire/native/outbox.ts";
import { RingConsumer, RingProducer } from "../../lib/wire/native/rings.ts";
import { DEFAULT_LIMITS } from "../../lib/wire/index.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { DoubleHost, type Behaviour } from "../support/double-host.ts";
import { isMessage, messageOf } from "../support/messages.ts";
import { noNative } from "../support/native.ts";
import { NativeRing } from "./native-ring.ts";

afterAll(forgetHosts);

const MIB = 2 ** 20;
const SLOTS = 64;
const RING_BYTES = RING.bytes + SLOTS * RING_ENTRY.bytes;
const NAMES = ["handoff", "returns", "sends", "dones"] as const;

class Side {
  readonly on: DoubleHost;
  readonly gpu: DeviceMemory;
  readonly received: DeviceRegion;
  readonly region: Region;
  readonly memory: NodeMemory;
  readonly inbox: NativeInbox;
  readonly outbox: Outbox;
  readonly rings: Record<(typeof NAMES)[number], NativeRing>;
  regionFreed = false;
  private readonly fd: number;
  private tokens = 0;

  static async open(behaviour: Behaviour = {}, debug = false): Promise<Side> {
    const on = new DoubleHost("cuda", behaviour);
    return new Side(on, await openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host), debug);
  }

  private constructor(on: DoubleHost, gpu: DeviceMemory, debug: boolean) {
    this.on = on;
    this.gpu = gpu;
    const received = gpu.allocDevice(2 * MIB);
    this.received = received;
    this.fd = received.exportDmaBuf();
    this.region = gpu.allocLocked(4 * MIB);
    const { address, bytes } = this.region;
    const memoryOffset = Math.ceil((4 * RING_BYTES) / 4096) * 4096;
    const area = toArrayBuffer(address as Pointer, 0, memoryOffset);
    this.rings = Object.fromEntries(
      NAMES.map((name, at) => [name, new NativeRing(area, at * RING_BYTES, SLOTS, RING_ENTRY.bytes, 0n)]),
    ) as typeof this.rings;
    const info = {
      address,
      bytes,
      memoryOffset,
      poolOffset: memoryOffset,
      poolBytes: bytes - memoryOffset,
    };
    const engine = {
      name: "double",
      info,
      messages: SLOTS,
      sends: new RingProducer(area, 2 * RING_BYTES),
      dones: new RingConsumer(area, 3 * RING_BYTES),
      freeRegion: () => void (this.regionFreed = true),
    } as unknown as NativeEngine;
    const kind = lockedKind({
      address: address + memoryOffset,
      bytes: info.poolBytes,
      device: { memory: gpu, region: this.region, offset: memoryOffset },
      onClose: () => {},
    });
    this.memory = new NodeMemory(
      engine,
      kind,
      { devicePtr: this.region.devicePtr!, handle: this.region.handle },
      {
        setting: "ZAP_SOME_BYTES",
        debug,
        kindOwnsRegion: true,
        received: {
          kind: new DeviceOwnKind(gpu),
          address: Number(received.devicePtr),
          handle: received.handle,
          copy: (offset, into) => received.copyToHost(offset, into),
        },
        onLeak: () => {},
        onFault: () => {},
      },
    );
    this.outbox = new Outbox(engine, this.memory, DEFAULT_LIMITS);
    this.inbox = new NativeInbox({
      handoff: new RingConsumer(area, 0),
      returns: new RingProducer(area, RING_BYTES),
      memory: this.memory,
      catchUp: () => {},
      flow: () => undefined,
      breather: new Breather(),
      unreleased: () => {},
    });
  }

  /** As a NIC: writes to the GPU's memory, and tells of it. */
  deliver(offset: number, message: Uint8Array): number {
    writeSync(this.fd, message, 0, message.length, offset);
    const token = ++this.tokens;
    this.rings.handoff.produce((entry) => {
      entry.setBigUint64(RING_ENTRY.at.address, this.received.devicePtr + BigInt(offset), true);
      entry.setUint32(RING_ENTRY.at.length, message.length, true);
      entry.setUint32(RING_ENTRY.at.peer, 7, true);
      entry.setBigUint64(RING_ENTRY.at.token, BigInt(token), true);
    });
    return token;
  }

  returned(): number[] {
    return this.rings.returns.consume((entry) => entry.getUint32(RING_ENTRY.at.token, true));
  }

  /** As the wire does at its end. */
  async close(): Promise<void> {
    this.inbox.close();
    this.inbox.end();
    this.outbox.end(new ClosedError("closed"), () => {});
    closeSync(this.fd);
    await this.memory.close();
  }

  faults(): string[] {
    return this.on.reported().filter((line) => line.startsWith("fault"));
  }
}

describe.skipIf(noNative || process.platform !== "linux")("messages in a GPU's own memory", () => {
  test("are the GPU's where the NIC wrote them, and the CPU's as copies, made when they are looked at", async () => {
    const side = await Side.open();
    const messages = [messageOf(64, 1), messageOf(100_000, 2), messageOf(20, 3)];
    const offsets = [0, 65_536, 512];
    const tokens = messages.map((message, at) => side.deliver(offsets[at]!, message));
    const envelopes = messages.map(() => side.inbox.take()!);
    expect(envelopes.map(({ peer }) => peer)).toEqual(["flow 7", "flow 7", "flow 7"]);
    // Whoever looks at the buffer alone pays for nothing.
    envelopes.forEach(({ buffer }, at) => {
      const slab = buffer as SlabBuffer;
      expect(slab.devicePtr).toBe(side.received.devicePtr + BigInt(offsets[at]!));
      expect([slab.size, slab.address, slab.owner]).toEqual([messages[at]!.length, 0, "cpu"]);
      expect([slab.regionHandle, slab.regionOffset]).toEqual([side.received.handle, offsets[at]!]);
    });
    expect(side.memory.copiedBytes).toBe(0);
    envelopes.forEach(({ message }, at) => expect(isMessage(message, at + 1)).toBe(true));
    expect(side.memory.copiedBytes).toBe(100_084);
    // Once, and for both.
    for (const { message, buffer } of envelopes) expect(buffer!.bytes).toBe(message);
    expect(side.memory.copiedBytes).toBe(100_084);
    // A copy is no part of the node's memory: it is sent as any other message is.
    expect(side.outbox.isInPlace(envelopes[1]!.message)).toBe(false);
    const kept = envelopes[1]!.message;
    for (const envelope of envelopes) {
      envelope.release();
      envelope.release();
      expect(() => envelope.message).toThrow(ClosedError);
    }
    expect(side.returned()).toEqual(tokens);
    expect(isMessage(kept, 2)).toBe(true);
    await side.close();
    expect([side.gpu.shim.call.live(), side.regionFreed]).toEqual([0, true]);
    expect(side.faults()).toEqual([]);
  });

  test("are handed over to the GPU and back, which makes a new copy", async () => {
    const side = await Side.open();
    const token = side.deliver(4096, messageOf(300, 4));
    const envelope = side.inbox.take()!;
    const buffer = envelope.buffer!;
    const first = envelope.message;
    buffer.handOver("gpu");
    expect(buffer.owner).toBe("gpu");
    // As a kernel would.
    side.deliver(4096, messageOf(300, 5));
    buffer.handOver("cpu");
    expect(isMessage(envelope.message, 5)).toBe(true);
    expect(isMessage(first, 4)).toBe(true);
    buffer.handOver("gpu");
    // The fence comes with the release.
    buffer.release();
    expect(side.returned()).toEqual([token]);
    side.inbox.take()!.release();
    await side.close();
    expect(side.faults()).toEqual([]);
  });

  test("are checked by a kernel where they lie", async () => {
    const side = await Side.open();
    side.deliver(0, messageOf(64, 1));
    side.deliver(64, messageOf(64, 1, { version: 9 }));
    const envelopes = [side.inbox.take()!, side.inbox.take()!];
    const { verdicts, where } = await checkHeaders(envelopes.map(({ buffer }) => buffer!));
    expect([where, [...verdicts], side.memory.copiedBytes]).toEqual(["cuda", [0, 3], 0]);
    const onCpu = await checkHeaders(
      envelopes.map(({ buffer }) => buffer!),
      { on: "cpu" },
    );
    expect([onCpu.where, [...onCpu.verdicts], side.memory.copiedBytes]).toEqual(["cpu", [0, 3], 128]);
    for (const envelope of envelopes) envelope.release();
    await side.close();
    expect(side.faults()).toEqual([]);
  });

  test("in debug mode are nobody's but their owner's, and their copies are empty afterwards", async () => {
    const side = await Side.open({}, true);
    side.deliver(0, messageOf(64, 1));
    const envelope = side.inbox.take()!;
    const { message } = envelope;
    const buffer = envelope.buffer!;
    buffer.handOver("gpu");
    expect(message.length).toBe(0);
    expect(() => envelope.message).toThrow(OwnerError);
    buffer.handOver("cpu");
    const again = envelope.message;
    expect(isMessage(again, 1)).toBe(true);
    buffer.handOver("nic");
    expect(() => envelope.release()).toThrow(OwnerError);
    buffer.handOver("cpu");
    envelope.release();
    expect(again.length).toBe(0);
    await side.close();
  });

  test("that are out when the node closes keep the GPU's memory until they are released", async () => {
    const side = await Side.open();
    side.deliver(128, messageOf(640, 6));
    const envelope = side.inbox.take()!;
    await side.close();
    expect(side.regionFreed).toBe(false);
    expect(isMessage(envelope.message, 6)).toBe(true);
    envelope.release();
    expect([side.regionFreed, side.gpu.shim.call.live()]).toEqual([true, 0]);
    expect(side.faults()).toEqual([]);
  });

  test("whose copy fails say so each time, and go back all the same", async () => {
    const side = await Side.open({ "fail.cuMemcpyDtoH_v2": 719 });
    const token = side.deliver(0, messageOf(64, 1));
    const envelope = side.inbox.take()!;
    for (let times = 0; times < 2; times++) expect(() => envelope.message).toThrow(ShimError);
    expect(side.memory.copiedBytes).toBe(0);
    envelope.release();
    expect(side.returned()).toEqual([token]);
    await side.close();
  });

  test("are never given to a kind that cannot reach them", async () => {
    const side = await Side.open();
    side.deliver(0, messageOf(64, 1));
    const envelope = side.inbox.take()!;
    expect(envelope.buffer!.handOver.bind(envelope.buffer, "nobody" as "cpu")).toThrow(NotAvailableError);
    envelope.release();
    await side.close();
  });
});
