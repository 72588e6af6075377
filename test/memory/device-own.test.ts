/** A GPU's own memory, over doubles of CUDA and HIP: the CPU cannot touch it, and sees copies. */
import { afterAll, describe, expect, test } from "bun:test";
import { dlopen, toArrayBuffer, type Pointer } from "bun:ffi";
import { closeSync, fstatSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { ClosedError, ShimError } from "../../lib/errors/index.ts";
import { DeviceOwnKind, deviceBehind, openDeviceMemory, type DeviceMemory } from "../../lib/memory/index.ts";
import { umaRuntime } from "../../lib/transport/probes/uma.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { DoubleHost, type Behaviour } from "../support/double-host.ts";
import { noNative, theNative } from "../support/native.ts";

afterAll(forgetHosts);

const KIB64 = 64 * 1024;

function open(on: DoubleHost): Promise<DeviceMemory> {
  return openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host);
}

function failure(call: () => unknown): ShimError {
  try {
    call();
  } catch (error) {
    return error as ShimError;
  }
  throw new Error("nothing was thrown");
}

/** How the pages at `address` are mapped, such as `---s`. */
function accessTo(address: bigint): string | undefined {
  return readFileSync("/proc/self/maps", "utf8")
    .split("\n")
    .map((line) => /^([0-9a-f]+)-([0-9a-f]+) (....)/.exec(line))
    .find((at) => at !== null && BigInt(`0x${at[1]}`) <= address && address < BigInt(`0x${at[2]}`))?.[3];
}

const faults = (on: DoubleHost): string[] => on.reported().filter((line) => line.startsWith("fault"));
const pattern = (bytes: number): Uint8Array<ArrayBuffer> =>
  Uint8Array.from({ length: bytes }, (_, at) => (at * 7 + 3) % 251);

/** What exports a dma-buf on each; the double's is a file, by which a test can write as a NIC would. */
const EXPORTS: Readonly<Record<"cuda" | "hip", Behaviour>> = { cuda: {}, hip: { runtime: 70_000_000 } };

describe.skipIf(noNative || process.platform !== "linux")("a device's own memory", () => {
  for (const vendor of ["cuda", "hip"] as const) {
    describe(vendor, () => {
      test("has no address for the CPU, and copies of what a NIC wrote by its dma-buf", async () => {
        const on = new DoubleHost(vendor, EXPORTS[vendor]);
        const memory = await open(on);
        const region = memory.allocDevice(3 * KIB64);
        expect([region.address, region.bytes]).toEqual([0, 3 * KIB64]);
        expect(region.devicePtr).toBeGreaterThan(0n);
        expect(accessTo(region.devicePtr)).toStartWith("---");
        const fd = region.exportDmaBuf();
        expect(fstatSync(fd).size).toBeGreaterThanOrEqual(region.bytes);
        writeSync(fd, pattern(1_000), 0, 1_000, KIB64 - 300);
        closeSync(fd);
        const copy = new Uint8Array(1_000);
        region.copyToHost(KIB64 - 300, copy);
        expect(copy).toEqual(pattern(1_000));
        // Never opened to the CPU, not even for the copy.
        expect(accessTo(region.devicePtr)).toStartWith("---");
        region.copyToHost(region.bytes, new Uint8Array(0));
        region.copyToHost(region.bytes - 1_000, copy);
        region.free();
        expect(memory.shim.call.live()).toBe(1);
        memory.close();
        expect(memory.shim.call.live()).toBe(0);
        expect(faults(on)).toEqual([]);
      });

      test("is not copied beyond its end, nor after it was freed", async () => {
        const on = new DoubleHost(vendor);
        const memory = await open(on);
        const region = memory.allocDevice(KIB64);
        for (const [offset, bytes] of [
          [KIB64, 1],
          [KIB64 - 1, 2],
          [0, KIB64 + 1],
          [2 ** 40, 1],
        ] as const) {
          const error = failure(() => region.copyToHost(offset, new Uint8Array(bytes)));
          expect(error).toMatchObject({ code: "ERR_ZAP_SHIM", status: "ZAP_E_INVALID" });
          expect(error.message).toContain(
            `${bytes} bytes from ${offset} on do not lie in a region of ${KIB64}`,
          );
        }
        const { handle } = region;
        region.free();
        expect(failure(() => memory.copyToHost(handle, 0, new Uint8Array(1))).status).toBe("ZAP_E_HANDLE");
        memory.close();
        expect(() => memory.allocDevice(KIB64)).toThrow(ClosedError);
        expect(() => memory.copyToHost(handle, 0, new Uint8Array(1))).toThrow(ClosedError);
        expect(faults(on)).toEqual([]);
      });

      test("copies of other memory are the same", async () => {
        const memory = await open(new DoubleHost(vendor));
        for (const region of [memory.allocRegion(KIB64), memory.allocLocked(KIB64)]) {
          new Uint8Array(toArrayBuffer(region.address as Pointer, 0, KIB64)).set(pattern(500), 50);
          const copy = new Uint8Array(500);
          memory.copyToHost(region.handle, 50, copy);
          expect(copy).toEqual(pattern(500));
        }
        memory.close();
      });

      test("is a kind that GPU and NIC reach, behind which there is its device", async () => {
        const memory = await open(new DoubleHost(vendor));
        const kind = new DeviceOwnKind(memory);
        expect(kind).toMatchObject({ name: vendor, reach: { cpu: false, gpu: true, nic: true } });
        expect(deviceBehind(kind)).toBe(memory);
        kind.allocRegion(KIB64).free();
        kind.close();
        memory.close();
        expect(memory.shim.call.live()).toBe(0);
      });
    });
  }

  test("of Metal there is none", async () => {
    const memory = await open(new DoubleHost("metal"));
    expect(failure(() => memory.allocDevice(KIB64)).status).toBe("ZAP_E_UNSUPPORTED");
    const region = memory.allocRegion(KIB64);
    new Uint8Array(toArrayBuffer(region.address as Pointer, 0, KIB64)).set(pattern(99));
    const copy = new Uint8Array(99);
    memory.copyToHost(region.handle, 0, copy);
    expect(copy).toEqual(pattern(99));
    memory.close();
  });

  for (const [vendor, call, copy] of [
    ["cuda", "cuMemAlloc_v2", "cuMemcpyDtoH_v2"],
    ["hip", "hipMalloc", "hipMemcpy"],
  ] as const) {
    test(`of ${vendor} tells where ${call} or ${copy} fails, or hangs`, async () => {
      const on = new DoubleHost(vendor, { [`fail.${call}`]: 2 });
      const refusing = await open(on);
      expect(failure(() => refusing.allocDevice(KIB64))).toMatchObject({ status: "ZAP_E_MEMORY" });
      refusing.close();
      on.behave({ [`fail.${copy}`]: 719 });
      const failing = await open(on);
      const region = failing.allocDevice(KIB64);
      const error = failure(() => region.copyToHost(0, new Uint8Array(4)));
      expect(error.message).toStartWith(`libzap_uma_${vendor}: copying 4 bytes to the host failed: ${copy}`);
      failing.close();
      const late = new DoubleHost(vendor, { [`hang.${copy}`]: 1 }, {}, { ZAP_DEVICE_MILLIS: "100" });
      const hanging = await open(late);
      const held = hanging.allocDevice(KIB64);
      expect(failure(() => held.copyToHost(0, new Uint8Array(4))).status).toBe("ZAP_E_TIMEOUT");
      expect(failure(() => hanging.close()).status).toBe("ZAP_E_TIMEOUT");
    });
  }

  test("is no dma-buf where the GPU has none", async () => {
    const memory = await open(new DoubleHost("cuda", { "attribute.124": 0 }));
    const error = failure(() => memory.allocDevice(KIB64).exportDmaBuf());
    expect(error.status).toBe("ZAP_E_UNSUPPORTED");
    expect(error.message).toContain("exports no device memory as a dma-buf");
    memory.close();
  });

  test("is found by the double of a NIC, whichever copy of the CUDA double it asks", async () => {
    const memory = await open(new DoubleHost("cuda"));
    const region = memory.allocDevice(2 * KIB64);
    const other = dlopen(join(theNative().doubles, "libcuda.so.1"), {
      zap_double_cuda_backing: { args: ["u64", "u64"], returns: "ptr" },
    });
    const { zap_double_cuda_backing: backing } = other.symbols;
    const at = backing(region.devicePtr + 100n, 1_000n)!;
    expect(at).not.toBeNull();
    new Uint8Array(toArrayBuffer(at, 0, 1_000)).set(pattern(1_000));
    const copy = new Uint8Array(1_000);
    region.copyToHost(100, copy);
    expect(copy).toEqual(pattern(1_000));
    expect(backing(region.devicePtr + BigInt(2 * KIB64 - 10), 20n)).toBeNull();
    const { devicePtr } = region;
    region.free();
    expect(backing(devicePtr, 1n)).toBeNull();
    memory.close();
  });
});
