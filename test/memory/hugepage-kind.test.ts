import { afterAll, describe, expect, test } from "bun:test";
import { ptr } from "bun:ffi";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { ClosedError, ConfigError, NotAvailableError, PoolError, ShimError } from "../../lib/errors/index.ts";
import { checkHeaders } from "../../lib/kernels/index.ts";
import {
  deviceBehind,
  heapKind,
  hugepageKind,
  openDeviceMemory,
  SlabPool,
  type DeviceMemory,
  type HugepageArea,
  type LeakReport,
  type MemoryKind,
  type Region,
} from "../../lib/memory/index.ts";
import { umaRuntime } from "../../lib/transport/probes/uma.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { DoubleHost, type Behaviour } from "../support/double-host.ts";
import { messageOf } from "../support/messages.ts";
import { noNative } from "../support/native.ts";
import { runs } from "../support/properties.ts";
import { failureOf } from "../support/wait.ts";
import { KIB, MIB } from "./kind-double.ts";

const PAGE = 4 * KIB;
const CLEAN = /^release (?!.*=[1-9]).*faults=0$/;

const folder = mkdtempSync(join(tmpdir(), "zap-hugepages-"));
/** Mappings, which are kept from the collector until all tests are done. */
const mapped: Uint8Array[] = [];

afterAll(() => {
  forgetHosts();
  rmSync(folder, { recursive: true, force: true });
  expect(mapped.every(({ length }) => length > 0)).toBe(true);
});

/** Where `bytes` of ordinary memory begin that are pages of their own, and shared, as hugepages are. */
function pagesOf(bytes: number): number {
  const path = join(folder, `${mapped.length}`);
  writeFileSync(path, new Uint8Array(bytes));
  const memory = Bun.mmap(path, { shared: true });
  mapped.push(memory);
  return ptr(memory) as number;
}

function areaOf(bytes: number) {
  const area = { address: pagesOf(bytes), bytes, device: null, closed: 0, onClose: () => void area.closed++ };
  return area;
}

function thrownBy(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

describe("hugepages without a GPU", () => {
  test("are for the CPU and a NIC, and known to no device", () => {
    const area = areaOf(4 * PAGE);
    const kind = hugepageKind(area);
    expect(kind.name).toBe("hugepages");
    expect(kind.reach).toEqual({ cpu: true, gpu: false, nic: true });
    expect(deviceBehind(kind)).toBeNull();
    kind.fenceToDevice();
    kind.fenceToHost();
    const region = kind.allocRegion(PAGE);
    expect(region).toMatchObject({
      bytes: PAGE,
      address: area.address,
      devicePtr: null,
      handle: 0,
      handleOffset: 0,
    });
    region.free();
    expect(area.closed).toBe(0);
    kind.close();
    expect(area.closed).toBe(1);
  });

  test("are cut at pages, the first place that is large enough, and grow together again", () => {
    const area = areaOf(10 * PAGE);
    const kind = hugepageKind(area);
    const at = (region: Region): number => (region.address - area.address) / PAGE;
    const [a, b, c, d] = [1, PAGE + 1, 3 * PAGE, 4 * PAGE].map((bytes) => kind.allocRegion(bytes));
    expect([a, b, c, d].map((region) => at(region!))).toEqual([0, 1, 3, 6]);
    expect(b!.bytes).toBe(PAGE + 1);
    expect(thrownBy(() => kind.allocRegion(1))).toBeInstanceOf(PoolError);
    b!.free();
    b!.free();
    d!.free();
    expect((thrownBy(() => kind.allocRegion(5 * PAGE)) as Error).message).toContain(
      `${4 * PAGE} of ${10 * PAGE} are free in one piece`,
    );
    expect(at(kind.allocRegion(PAGE))).toBe(1);
    expect(at(kind.allocRegion(2 * PAGE))).toBe(6);
    expect(at(kind.allocRegion(PAGE))).toBe(2);
    c!.free();
    expect(at(kind.allocRegion(3 * PAGE))).toBe(3);
  });

  test("give nothing twice, and lose nothing", () => {
    const PAGES = 32;
    const area = areaOf(PAGES * PAGE + 100);
    const step = fc.record({
      bytes: fc.integer({ min: 1, max: 9 * PAGE }),
      free: fc.boolean(),
      which: fc.nat(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const kind = hugepageKind(area);
        const out: Region[] = [];
        const owner = new Array<Region | null>(PAGES).fill(null);
        const mark = (region: Region, from: Region | null, to: Region | null): void => {
          const first = (region.address - area.address) / PAGE;
          for (let page = first; page < first + Math.ceil(region.bytes / PAGE); page++) {
            expect(owner[page]).toBe(from);
            owner[page] = to;
          }
        };
        const longest = (): number => {
          let [run, most] = [0, 0];
          for (const one of owner) most = Math.max(most, (run = one === null ? run + 1 : 0));
          return most;
        };
        for (const { bytes, free, which } of steps) {
          if (free && out.length > 0) {
            const [region] = out.splice(which % out.length, 1);
            mark(region!, region!, null);
            region!.free();
          } else if (Math.ceil(bytes / PAGE) > longest()) {
            expect(() => kind.allocRegion(bytes)).toThrow(PoolError);
          } else {
            const region = kind.allocRegion(bytes);
            expect(region.address % PAGE).toBe(0);
            mark(region, null, region);
            out.push(region);
          }
        }
        for (const region of out) region.free();
        expect(kind.allocRegion(PAGES * PAGE).address).toBe(area.address);
      }),
      runs(100),
    );
  });

  test.each([
    ["begins at no page", { address: 12_345, bytes: PAGE }],
    ["begins nowhere", { address: 0, bytes: PAGE }],
    ["has no page", { address: PAGE, bytes: PAGE - 1 }],
    ["has no size", { address: PAGE, bytes: Number.NaN }],
  ])("refuse an area that %s", (_, area) => {
    expect(() => hugepageKind({ ...area, device: null, onClose: () => {} })).toThrow(ConfigError);
  });
});

describe("a pool of hugepages", () => {
  test("hands out buffers that a NIC may have, and takes them back", async () => {
    const area = areaOf(4 * MIB);
    const pool = new SlabPool(hugepageKind(area), { poolBytes: area.bytes, debug: false });
    const sizes = [1, 256, 5_000, 65_536, MIB, MIB + 1];
    const buffers = sizes.map((size) => pool.tryAlloc(size)!);
    for (const [index, buffer] of buffers.entries()) {
      expect(buffer.address).toBeGreaterThanOrEqual(area.address);
      expect(buffer.address + buffer.size).toBeLessThanOrEqual(area.address + area.bytes);
      expect([buffer.devicePtr, buffer.regionHandle]).toEqual([null, 0]);
      buffer.bytes.fill(index + 1);
    }
    expect(mapped.at(-1)!.reduce((sum, byte) => sum + byte, 0)).toBe(
      sizes.reduce((sum, size, index) => sum + size * (index + 1), 0),
    );
    const [first] = buffers;
    void first!.handOver("nic");
    expect(first!.owner).toBe("nic");
    void first!.handOver("cpu");
    expect(() => first!.handOver("gpu")).toThrow(NotAvailableError);
    const message = pool.tryAlloc(100)!;
    message.bytes.set(messageOf(100));
    expect((await checkHeaders([message])).where).toBe("cpu");
    for (const buffer of [...buffers, message]) buffer.release();
    expect(pool.stats()).toMatchObject({ buffers: 0, usedBytes: 0, lostBytes: 0 });
    await pool.close();
    expect(area.closed).toBe(1);
  });

  test("lets those wait for whom the area has no room now, also where the pool may have more", async () => {
    const area = areaOf(2 * MIB);
    // The area ends before the pool's bound does.
    const pool = new SlabPool(hugepageKind(area), { poolBytes: 16 * MIB, debug: false });
    const held = [pool.tryAlloc(MIB)!, pool.tryAlloc(MIB)!];
    expect(pool.tryAlloc(MIB)).toBeNull();
    const waiting = pool.alloc(MIB);
    expect(pool.waiting).toBe(1);
    held[0]!.release();
    const got = await waiting;
    expect(got.size).toBe(MIB);
    got.release();
    held[1]!.release();
    // With nothing out there is nothing to wait for.
    expect(await failureOf(pool.alloc(3 * MIB))).toBeInstanceOf(PoolError);
    pool.tryAlloc(2 * MIB)!.release();
    await pool.close();
    expect(area.closed).toBe(1);
  });

  test("keeps the area until the last buffer is back", async () => {
    const area = areaOf(MIB);
    const pool = new SlabPool(hugepageKind(area), { poolBytes: area.bytes, debug: false });
    const [small, large] = [pool.tryAlloc(100)!, pool.tryAlloc(300 * KIB)!];
    expect(await pool.close()).toMatchObject({ buffers: 2 });
    expect(() => pool.tryAlloc(1)).toThrow(ClosedError);
    large.bytes.fill(7);
    large.release();
    expect(area.closed).toBe(0);
    small.bytes.fill(8);
    small.release();
    await Bun.sleep(0);
    expect(area.closed).toBe(1);
    await pool.close();
    expect(area.closed).toBe(1);
  });
});

describe.skipIf(noNative || process.platform !== "linux")("hugepages that a GPU knows", () => {
  /** A region of 4 MiB that the double of a GPU knows, and the kind over what lies behind its first MiB. */
  async function onDevice(vendor: "cuda" | "hip", behaviour: Behaviour, env: Record<string, string> = {}) {
    const on = new DoubleHost(vendor, behaviour, {}, env);
    const memory = await openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host);
    const address = pagesOf(4 * MIB);
    const region = memory.register(address, 4 * MIB);
    const area: HugepageArea & { closed: number; live: number } = {
      address: address + MIB,
      bytes: 3 * MIB,
      device: { memory, region, offset: MIB },
      closed: 0,
      live: -1,
      onClose() {
        area.closed++;
        area.live = memory.shim.call.live();
      },
    };
    const leaks: LeakReport[] = [];
    const onLeak = (report: LeakReport): void => void leaks.push(report);
    const pool = (kind: MemoryKind) => new SlabPool(kind, { poolBytes: area.bytes, debug: false, onLeak });
    return { on, memory, address, region, area, pool, leaks };
  }

  test("tell where the GPU finds each piece, and in which region", async () => {
    const { on, memory, address, region, area } = await onDevice("cuda", { alias: 1 });
    expect(region).toMatchObject({ address, bytes: 4 * MIB, handleOffset: 0 });
    expect(region.devicePtr).not.toBe(BigInt(address));
    const kind = hugepageKind(area);
    expect(kind.reach).toEqual({ cpu: true, gpu: true, nic: true });
    expect(deviceBehind(kind)).toBe(memory);
    expect(deviceBehind(memory)).toBe(memory);
    expect(deviceBehind(heapKind())).toBeNull();
    const [one, two] = [kind.allocRegion(PAGE), kind.allocRegion(PAGE)];
    expect(one).toMatchObject({ handle: region.handle, handleOffset: MIB, address: area.address });
    expect(two).toMatchObject({ handle: region.handle, handleOffset: MIB + PAGE });
    expect(two.devicePtr).toBe(region.devicePtr! + BigInt(MIB + PAGE));
    one.free();
    two.free();
    kind.close();
    // The area was let go of before it was given back.
    expect([area.closed, area.live]).toEqual([1, 0]);
    expect(on.reported().filter((line) => !CLEAN.test(line))).toEqual([]);
  });

  test("are checked by a kernel where they lie", async () => {
    const { on, memory, area, pool: poolOf } = await onDevice("cuda", { alias: 1, kernel_millis: 2 });
    const pool = poolOf(hugepageKind(area));
    const sizes = [16, 100, 5_000, 70_000, 16];
    const buffers = sizes.map((size) => pool.tryAlloc(size)!);
    for (const buffer of buffers) buffer.bytes.set(messageOf(buffer.size));
    buffers[2]!.bytes[0] = 0;
    for (const { regionOffset, regionHandle, devicePtr, address } of buffers) {
      expect(regionHandle).toBe(area.device!.region.handle);
      expect(regionOffset).toBe(address - area.address + MIB);
      expect(devicePtr).toBe(area.device!.region.devicePtr! + BigInt(regionOffset));
    }
    const checked = await checkHeaders(buffers);
    expect(checked).toEqual({ verdicts: new Uint8Array([0, 0, 2, 0, 0]), where: "cuda" });
    expect((await checkHeaders(buffers, { on: "cpu" })).verdicts).toEqual(checked.verdicts);
    await buffers[0]!.handOver("gpu");
    expect(buffers[0]!.owner).toBe("gpu");
    await buffers[0]!.handOver("nic");
    await buffers[0]!.handOver("cpu");
    // Memory of the same device that is not ours is no reason to leave it to the CPU; other memory is.
    const own = new SlabPool(memory, { poolBytes: MIB, debug: false });
    const other = own.tryAlloc(16)!;
    other.bytes.set(messageOf(16));
    expect((await checkHeaders([other, ...buffers])).where).toBe("cuda");
    expect((await checkHeaders([...buffers, messageOf(16)])).where).toBe("cpu");
    other.release();
    // Released while a kernel may still read it.
    const checking = checkHeaders(buffers);
    for (const buffer of buffers) buffer.release();
    expect(pool.stats().buffers).toBe(buffers.length);
    expect((await checking).verdicts).toEqual(checked.verdicts);
    await Bun.sleep(0);
    await pool.close();
    expect([area.closed, area.live]).toEqual([1, 0]);
    expect(on.reported().filter((line) => !CLEAN.test(line))).toEqual([]);
  });

  test("are left to the CPU where the device runs no kernels", async () => {
    const { on, area, pool: poolOf } = await onDevice("hip", { alias: 1 });
    const pool = poolOf(hugepageKind(area));
    const buffer = pool.tryAlloc(100)!;
    buffer.bytes.set(messageOf(100));
    expect(buffer.devicePtr).not.toBe(BigInt(buffer.address));
    expect(await checkHeaders([buffer])).toEqual({ verdicts: new Uint8Array(1), where: "cpu" });
    await buffer.handOver("gpu");
    await pool.close();
    expect(area.closed).toBe(0);
    buffer.release();
    await Bun.sleep(0);
    expect([area.closed, area.live]).toEqual([1, 0]);
    expect(on.reported().filter((line) => !CLEAN.test(line))).toEqual([]);
  });

  test("stay where they are when the driver does not let go of them", async () => {
    const { memory, area, pool: poolOf, leaks } = await onDevice("cuda", { "fail.cuMemHostUnregister": 719 });
    const pool = poolOf(hugepageKind(area));
    pool.tryAlloc(100)!.release();
    const error = await failureOf(pool.close());
    expect(error).toBeInstanceOf(ShimError);
    expect(error.message).toContain("cuMemHostUnregister failed with CUDA_ERROR_LAUNCH_FAILED (719)");
    await Bun.sleep(1);
    expect(leaks).toMatchObject([{ cause: "device", error }]);
    expect(memory.shim.call.live()).toBe(0);
    expect(area.closed).toBe(0);
  });

  test("stay where they are when the driver hangs", async () => {
    const behaviour = { "hang.cuMemHostUnregister": 1 };
    const { memory, area } = await onDevice("cuda", behaviour, { ZAP_DEVICE_MILLIS: "200" });
    const kind = hugepageKind(area);
    expect(thrownBy(() => kind.close())).toMatchObject({ status: "ZAP_E_TIMEOUT" });
    expect(memory.shim.call.live()).toBe(0);
    expect(area.closed).toBe(0);
  });

  test("have to lie in the region that was registered", async () => {
    const { memory, region, address } = await onDevice("cuda", {});
    const tries: [number, number, number][] = [
      [address, PAGE, PAGE],
      [address + 4 * MIB, PAGE, 4 * MIB],
      [address + PAGE, 4 * MIB, PAGE],
      [address - PAGE, PAGE, -PAGE],
    ];
    for (const [from, bytes, offset] of tries) {
      const area = { address: from, bytes, device: { memory, region, offset }, onClose: () => {} };
      expect(() => hugepageKind(area)).toThrow(ConfigError);
    }
    memory.close();
  });
});

describe.skipIf(noNative || process.platform !== "linux")("registering memory with a device", () => {
  async function open(vendor: "cuda" | "hip" | "metal", behaviour: Behaviour = {}) {
    const on = new DoubleHost(vendor, behaviour);
    const memory: DeviceMemory = await openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host);
    return { on, memory };
  }
  const status = (call: () => unknown): unknown => (thrownBy(call) as ShimError).status;

  for (const [vendor, call] of [
    ["cuda", "cuMemHostRegister_v2"],
    ["hip", "hipHostRegister"],
  ] as const) {
    test(`${vendor} takes it once, and lets go of it`, async () => {
      const { on, memory } = await open(vendor);
      const address = pagesOf(2 * PAGE);
      expect(status(() => memory.register(address + 1, PAGE))).toBe("ZAP_E_INVALID");
      expect(status(() => memory.register(address, 100))).toBe("ZAP_E_INVALID");
      expect(status(() => memory.register(0, PAGE))).toBe("ZAP_E_INVALID");
      for (const number of [-PAGE, 0.5, Number.NaN])
        expect(() => memory.register(number, PAGE)).toThrow(ConfigError);
      const region = memory.register(address, 2 * PAGE);
      expect(region).toMatchObject({ address, bytes: 2 * PAGE, handleOffset: 0 });
      expect(region.devicePtr).toBe(BigInt(address));
      const twice = thrownBy(() => memory.register(address, PAGE)) as ShimError;
      expect(twice.status).toBe("ZAP_E_DRIVER");
      expect(twice.message).toMatch(/ALREADY_REGISTERED|AlreadyRegistered/);
      expect(status(() => memory.exportRegion(region))).toBe("ZAP_E_UNSUPPORTED");
      mapped.at(-1)!.set(messageOf(16), 5_000);
      const verdict = new Uint8Array(1).fill(99);
      const span = { region: region.handle, offset: 5_000, length: 16 };
      memory.checkHost([span], [1], verdict);
      expect(verdict[0]).toBe(0);
      // Offsets beyond 4 GiB arrive whole.
      const far = { ...span, offset: 3 * 2 ** 32 + 5_000 };
      const beyond = thrownBy(() => memory.checkHost([far], [1], verdict)) as ShimError;
      expect(beyond.status).toBe("ZAP_E_INVALID");
      expect(beyond.message).toContain(`16 bytes from ${far.offset} do not lie in its region of ${2 * PAGE}`);
      region.free();
      region.free();
      // The memory is still there, and what is left registered ends with the device.
      mapped.at(-1)!.fill(1);
      memory.register(address, PAGE);
      memory.close();
      expect(() => memory.register(address, PAGE)).toThrow(ClosedError);
      expect(memory.shim.call.live()).toBe(0);
      expect(on.reported().filter((line) => !CLEAN.test(line))).toEqual([]);
    });

    test(`${vendor} cannot where its library has no ${call}`, async () => {
      const on = new DoubleHost(vendor);
      const { runtime } = umaRuntime(on.host)!;
      // Under another name nobody finds it.
      const library = readFileSync(runtime)
        .toString("latin1")
        .replaceAll(`${call}\0`, `x${call.slice(1)}\0`);
      writeFileSync(runtime, library, "latin1");
      const memory = await openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host);
      const error = thrownBy(() => memory.register(pagesOf(PAGE), PAGE)) as ShimError;
      expect(error.status).toBe("ZAP_E_UNSUPPORTED");
      expect(error.message).toContain(`has no ${call}`);
      memory.allocRegion(PAGE).free();
      memory.close();
    });
  }

  test("metal takes none", async () => {
    const { memory } = await open("metal");
    const error = thrownBy(() => memory.register(pagesOf(16 * PAGE), 16 * PAGE)) as ShimError;
    expect(error.status).toBe("ZAP_E_UNSUPPORTED");
    expect(error.message).toContain("memory cannot be registered with");
    memory.close();
  });
});
