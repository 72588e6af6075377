import { afterAll, describe, expect, test } from "bun:test";
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { closeSync, fstatSync } from "node:fs";
import { ClosedError, ConfigError, PoolError, ShimError } from "../../lib/errors/index.ts";
import {
  openDeviceMemory,
  SlabPool,
  type DeviceMemory,
  type DeviceOptions,
  type LeakReport,
} from "../../lib/memory/index.ts";
import { umaRuntime } from "../../lib/transport/probes/uma.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { DoubleHost, type Behaviour, type Vendor } from "../support/double-host.ts";
import { noNative } from "../support/native.ts";
import { failureOf } from "../support/wait.ts";

afterAll(forgetHosts);

/** A double's report of a device that was let go of with nothing left behind. */
const CLEAN = /^release (?!.*=[1-9]).*faults=0$/;
const PAGE = 4096;
const GIB = 1024 ** 3;

function open(on: DoubleHost, options: Partial<DeviceOptions> = {}): Promise<DeviceMemory> {
  return openDeviceMemory({ ...umaRuntime(on.host)!, ...options }, on.host.env, on.host);
}

function bytesAt(address: number, bytes: number): Uint8Array {
  return new Uint8Array(toArrayBuffer(address as Pointer, 0, bytes));
}

/** A header of a message of `size` bytes whose root object is at `root`. */
function header(size: number, { magic = 0x5a415000, version = 1, root = 16 } = {}): Uint8Array {
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, magic);
  view.setUint16(4, version, true);
  view.setUint32(8, root, true);
  view.setUint32(12, size, true);
  return bytes;
}

async function verdictsOf(memory: DeviceMemory, job: number, count: number): Promise<number[]> {
  const verdicts = new Uint8Array(count).fill(99);
  while (!memory.checkPoll(job, verdicts)) await Bun.sleep(1);
  return [...verdicts];
}

/** What a call throws. */
function failure(call: () => unknown): ShimError {
  try {
    call();
  } catch (error) {
    return error as ShimError;
  }
  throw new Error("nothing was thrown");
}

const OUT_OF_MEMORY: Readonly<Record<Vendor, Behaviour>> = {
  cuda: { "fail.cuMemAllocManaged": 2 },
  hip: { "fail.hipMallocManaged": 2 },
  metal: { "fail.newBufferWithLength:options:": 1 },
};

const HANGS: Readonly<Record<Vendor, { start: string; alloc: string }>> = {
  cuda: { start: "cuInit", alloc: "cuMemAllocManaged" },
  hip: { start: "hipInit", alloc: "hipMallocManaged" },
  metal: { start: "MTLCreateSystemDefaultDevice", alloc: "newBufferWithLength:options:" },
};

describe.skipIf(noNative || process.platform !== "linux")("the memory of a device", () => {
  for (const vendor of ["cuda", "hip", "metal"] as const) {
    describe(vendor, () => {
      test("opens, says what the device is, and lets go of everything", async () => {
        const on = new DoubleHost(vendor, { name: "A Double" });
        const memory = await open(on);
        expect(memory.name).toBe(vendor);
        expect(memory.device).toMatchObject({ name: "A Double", index: 0, count: 1 });
        expect(memory.device.memoryBytes).toBeGreaterThan(0);
        expect(memory.device.memory).toBe(vendor === "metal" ? "shared" : "managed");
        expect(memory.reach).toEqual({ cpu: true, gpu: true, nic: false });
        expect(memory.shim.call.live()).toBe(1);
        memory.close();
        memory.close();
        expect(memory.shim.call.live()).toBe(0);
        expect(on.reported().filter((line) => !CLEAN.test(line))).toEqual([]);
      });

      test("gives regions that the CPU reaches by address", async () => {
        const on = new DoubleHost(vendor);
        const memory = await open(on);
        const regions = [1, PAGE, 1024 * 1024 + 3].map((bytes) => memory.allocRegion(bytes));
        for (const [index, region] of regions.entries()) {
          expect(Number.isSafeInteger(region.address) && region.address > 0).toBe(true);
          expect(region.address % PAGE).toBe(0);
          expect(region.devicePtr).toBeGreaterThan(0n);
          expect(region.handle).toBeGreaterThan(0);
          bytesAt(region.address, region.bytes).fill(index + 1);
        }
        expect(regions.map(({ bytes }) => bytes)).toEqual([1, PAGE, 1024 * 1024 + 3]);
        regions.forEach((region, index) => {
          const bytes = bytesAt(region.address, region.bytes);
          expect([bytes[0], bytes.at(-1)]).toEqual([index + 1, index + 1]);
        });
        memory.fenceToDevice();
        memory.fenceToHost();
        for (const region of regions) {
          region.free();
          region.free();
        }
        expect(memory.shim.call.live()).toBe(1);
        memory.close();
        expect(on.reported().filter((line) => line.startsWith("fault"))).toEqual([]);
      });

      test("frees at closing what is left", async () => {
        const on = new DoubleHost(vendor);
        const memory = await open(on);
        memory.allocRegion(PAGE);
        memory.allocRegion(10 * PAGE);
        memory.close();
        expect(memory.shim.call.live()).toBe(0);
        expect(on.reported().filter((line) => !CLEAN.test(line))).toEqual([]);
        expect(on.reported()).not.toEqual([]);
      });

      test("checks headers where they lie, on the device where it can and by the CPU", async () => {
        const on = new DoubleHost(vendor);
        const memory = await open(on);
        const region = memory.allocRegion(16 * PAGE);
        const bytes = bytesAt(region.address, region.bytes);
        const cases = [
          [header(64), 64, 0],
          [header(64), 1000, 0],
          [header(64, { root: 0 }), 64, 0],
          [header(64), 15, 1],
          [header(64, { magic: 0x5a415001 }), 64, 2],
          [header(64, { version: 3 }), 64, 3],
          [header(64, { version: 2 }), 64, 0],
          [header(64), 63, 4],
          [header(15), 64, 4],
          [header(64, { root: 15 }), 64, 5],
          [header(64, { root: 65 }), 64, 5],
        ] as const;
        const spans = cases.map(([head, length], index) => {
          const offset = index * 1024 + index;
          bytes.set(head, offset);
          return { region: region.handle, offset, length };
        });
        const expected = cases.map(([, , verdict]) => verdict) as number[];
        memory.fenceToDevice();
        const byHost = new Uint8Array(spans.length);
        memory.checkHost(spans, [1, 2], byHost);
        expect([...byHost]).toEqual(expected);
        if (memory.device.flags.has("kernels")) {
          const job = memory.checkBegin(spans, [1, 2]);
          expect(await verdictsOf(memory, job, spans.length)).toEqual(expected);
          expect(failure(() => memory.checkPoll(job, byHost)).status).toBe("ZAP_E_HANDLE");
        } else {
          expect(failure(() => memory.checkBegin(spans, [1])).status).toBe("ZAP_E_UNSUPPORTED");
        }
        memory.fenceToHost();
        memory.close();
        expect(on.reported().filter((line) => line.startsWith("fault"))).toEqual([]);
      });

      test("tells of memory that is not to be had, and goes on", async () => {
        const on = new DoubleHost(vendor, { memory: GIB });
        const memory = await open(on);
        const error = failure(() => memory.allocRegion(8 * GIB));
        expect(error).toBeInstanceOf(ShimError);
        expect(error).toMatchObject({ code: "ERR_ZAP_SHIM", status: "ZAP_E_MEMORY" });
        expect(error.message).toStartWith(`libzap_uma_${vendor}: allocating 8589934592 bytes failed: `);
        memory.allocRegion(PAGE).free();
        memory.close();
        on.behave(OUT_OF_MEMORY[vendor]);
        const refusing = await open(on);
        expect(failure(() => refusing.allocRegion(PAGE)).status).toBe("ZAP_E_MEMORY");
        refusing.close();
        expect(refusing.shim.call.live()).toBe(0);
      });

      test("does not wait for a driver that hangs, neither at opening nor later", async () => {
        const { start, alloc } = HANGS[vendor];
        const on = new DoubleHost(vendor, { [`hang.${start}`]: 1 }, {}, { ZAP_DEVICE_MILLIS: "100" });
        const opening = (await failureOf(open(on))) as ShimError;
        expect(opening).toMatchObject({ code: "ERR_ZAP_SHIM", status: "ZAP_E_TIMEOUT" });
        expect(opening.message).toContain(start);

        // Metal makes a buffer or two of its own before.
        const behaviour = { [`hang.${alloc}`]: 1, [`after.${alloc}`]: 4 };
        const later = new DoubleHost(vendor, behaviour, {}, { ZAP_DEVICE_MILLIS: "100" });
        const memory = await open(later);
        const first = failure(() => {
          for (let n = 0; n < 5; n++) memory.allocRegion(PAGE);
        });
        expect(first.status).toBe("ZAP_E_TIMEOUT");
        expect(first.message).toContain(alloc);
        // From now on it answers at once: so many would take minutes.
        for (let n = 0; n < 1_000; n++) {
          expect(failure(() => memory.allocRegion(PAGE)).status).toBe("ZAP_E_TIMEOUT");
        }
        expect(failure(() => memory.fenceToHost()).status).toBe("ZAP_E_TIMEOUT");
        expect(failure(() => memory.close()).status).toBe("ZAP_E_TIMEOUT");
        expect(memory.shim.call.live()).toBe(0);
      });

      test("is closed for good", async () => {
        const on = new DoubleHost(vendor);
        const memory = await open(on);
        const region = memory.allocRegion(PAGE);
        memory.close();
        const calls = [
          () => memory.allocRegion(PAGE),
          () => memory.fenceToDevice(),
          () => memory.fenceToHost(),
          () => memory.checkBegin([], [1]),
          () => memory.checkPoll(1, new Uint8Array(1)),
          () => memory.checkHost([], [1], new Uint8Array(1)),
          () => memory.exportRegion(region),
          () => region.free(),
        ];
        for (const call of calls) expect(call).toThrow(ClosedError);
      });
    });
  }

  for (const [vendor, call, locked, other] of [
    ["cuda", "cuMemFree_v2", {}, "cuMemFreeHost"],
    ["cuda", "cuMemFreeHost", { "attribute.89": 0 }, "cuMemFree_v2"],
    ["hip", "hipFree", {}, "hipHostFree"],
    ["hip", "hipHostFree", { "attribute.9": 0 }, "hipFree"],
  ] as const) {
    describe(`${vendor}, where ${call} fails`, () => {
      test("is told to whoever frees a region, whose handle is gone", async () => {
        const on = new DoubleHost(vendor, { ...locked, [`fail.${call}`]: 719 });
        const memory = await open(on);
        const region = memory.allocRegion(PAGE);
        const error = failure(() => region.free());
        expect(error).toMatchObject({ code: "ERR_ZAP_SHIM", status: "ZAP_E_DRIVER" });
        expect(error.message).toStartWith(
          `libzap_uma_${vendor}: freeing a region failed: ${call} failed with `,
        );
        expect(failure(() => memory.freeRegion(region.handle)).status).toBe("ZAP_E_HANDLE");
        // Closing frees what is left, and has nobody to tell.
        memory.allocRegion(PAGE);
        memory.close();
        expect(memory.shim.call.live()).toBe(0);
      });

      test("is lost to its pool, which never asks for more than it may", async () => {
        const MIB = 1024 * 1024;
        const on = new DoubleHost(vendor, { ...locked, [`fail.${call}`]: 719, memory: 64 * MIB });
        const memory = await open(on);
        const reports: LeakReport[] = [];
        const onLeak = (report: LeakReport) => void reports.push(report);
        const pool = new SlabPool(memory, { poolBytes: 4 * MIB, onLeak });
        // The second needs the room of the first, which goes back to the driver for it.
        pool.tryAlloc(2 * MIB)!.release();
        expect(() => pool.tryAlloc(3 * MIB)).toThrow(PoolError);
        expect(pool.stats()).toMatchObject({ lostBytes: 2 * MIB, reservedBytes: 2 * MIB, buffers: 0 });
        // What is left still serves.
        pool.tryAlloc(MIB)!.release();
        await Bun.sleep(1);
        expect(reports).toMatchObject([{ cause: "device", bytes: 2 * MIB }]);
        expect(String(reports[0]!.error)).toContain(`${call} failed with `);
        await pool.close();
        // A pool that has lost memory leaves its device open.
        memory.close();
        expect(memory.shim.call.live()).toBe(0);
      });

      test(`does not matter where ${other} is what frees`, async () => {
        const on = new DoubleHost(vendor, { ...locked, [`fail.${other}`]: 719 });
        const memory = await open(on);
        memory.allocRegion(PAGE).free();
        memory.close();
      });
    });
  }

  test("is page-locked where the CPU may not touch managed memory at any time, and then a NIC reaches it", async () => {
    const on = new DoubleHost("cuda", { "attribute.89": 0 });
    const memory = await open(on);
    expect(memory.device.memory).toBe("host");
    expect(memory.device.flags.has("concurrent")).toBe(false);
    expect(memory.reach.nic).toBe(true);
    memory.allocRegion(PAGE);
    memory.close();
  });

  test("has its own address on the device where that differs", async () => {
    const on = new DoubleHost("cuda", { "attribute.89": 0, alias: 1 });
    const memory = await open(on);
    const region = memory.allocRegion(PAGE);
    expect(region.devicePtr).not.toBe(BigInt(region.address));
    memory.close();
  });

  test("is that of the device that ZAP_CUDA_DEVICE names, or an option", async () => {
    const two = { devices: 2 };
    const on = new DoubleHost("cuda", two, {}, { ZAP_CUDA_DEVICE: " 1 " });
    const memory = await open(on);
    expect(memory.device).toMatchObject({ index: 1, count: 2 });
    memory.close();
    const first = await open(on, { index: 0 });
    expect(first.device.index).toBe(0);
    first.close();
    const third = (await failureOf(open(on, { index: 2 }))) as ShimError;
    expect(third).toMatchObject({ status: "ZAP_E_DEVICE" });
    expect(third.message).toContain("opening device 2 failed: ");
    // Only CUDA's devices are meant.
    const amd = await open(new DoubleHost("hip", {}, {}, { ZAP_CUDA_DEVICE: "1" }));
    expect(amd.device.index).toBe(0);
    amd.close();
  });

  test("is exported as a dma-buf where the device can, and refused where not", async () => {
    const on = new DoubleHost("cuda", { "attribute.89": 0, "attribute.124": 1, "attribute.146": 1 });
    const memory = await open(on);
    expect([...memory.device.flags]).toContain("hostDmaBuf");
    const fd = memory.exportRegion(memory.allocRegion(64 * 1024));
    expect(fstatSync(fd).size).toBeGreaterThan(0);
    closeSync(fd);
    memory.close();
    const managed = await open(new DoubleHost("cuda"));
    const region = managed.allocRegion(64 * 1024);
    expect(failure(() => managed.exportRegion(region)).status).toBe("ZAP_E_UNSUPPORTED");
    managed.close();
  });

  test("refuses settings and arguments that make no sense", async () => {
    for (const [name, value] of [
      ["ZAP_CUDA_DEVICE", "gpu0"],
      ["ZAP_CUDA_DEVICE", "-1"],
      ["ZAP_CUDA_DEVICE", "1.5"],
      ["ZAP_CUDA_DEVICE", "4096"],
      ["ZAP_DEVICE_MILLIS", "0"],
      ["ZAP_DEVICE_MILLIS", "10s"],
      ["ZAP_DEVICE_MILLIS", "1e9"],
    ] as const) {
      const error = await failureOf(open(new DoubleHost("cuda", {}, {}, { [name]: value })));
      expect(error).toBeInstanceOf(ConfigError);
      expect(error.message).toStartWith(`${name} is "${value}"; it takes a decimal number from `);
    }
    const on = new DoubleHost("cuda");
    for (const options of [{ index: -1 }, { index: 0.5 }, { timeoutMillis: 0 }, { timeoutMillis: NaN }]) {
      expect(await failureOf(open(on, options))).toBeInstanceOf(ConfigError);
    }
    const memory = await open(on);
    const span = { region: memory.allocRegion(PAGE).handle, offset: 0, length: 16 };
    for (const versions of [[0], [65_536], [1.5], [1, 2, 3, 4, 5]]) {
      expect(() => memory.checkHost([span], versions, new Uint8Array(1))).toThrow(ConfigError);
    }
    expect(() => memory.checkHost([span, span], [1], new Uint8Array(1))).toThrow(ConfigError);
    for (const wrong of [
      { ...span, region: 12345 },
      { ...span, offset: PAGE },
      { ...span, length: 2 ** 31 },
    ]) {
      const { status } = failure(() => memory.checkHost([wrong], [1], new Uint8Array(1)));
      expect(["ZAP_E_INVALID", "ZAP_E_HANDLE"]).toContain(status!);
    }
    memory.close();
  });

  test("is not opened through a shim that is not there", async () => {
    const on = new DoubleHost("cuda");
    const host = { ...on.host, arch: "none", env: { ZAP_LIB_DIR: "/no/such/folder" } };
    const error = await failureOf(openDeviceMemory(umaRuntime(on.host)!, host.env, host));
    expect(error).toMatchObject({ code: "ERR_ZAP_SHIM", status: null });
  });
});
