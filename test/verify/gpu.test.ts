/** The GPU backend over a double of the CUDA driver, which runs the kernel on the CPU as a GPU would. */
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { afterAll, describe, expect, test } from "bun:test";
import { openDeviceMemory, SlabPool, type DeviceMemory } from "../../lib/memory/index.ts";
import { umaRuntime } from "../../lib/transport/probes/uma.ts";
import { GpuBackend } from "../../lib/verify/backends/gpu.ts";
import { batchInPlace } from "../../lib/verify/backends/gpu-place.ts";
import { DEFAULT_PARAMS, type Backend, type Job, type PackedBatch } from "../../lib/verify/contract.ts";
import { ed25519 } from "../../lib/verify/schemes/ed25519.ts";
import type { ZapError } from "../../lib/errors/index.ts";
import { forgetHosts, madeUpHost } from "../probe/made-up-host.ts";
import { DoubleHost, type Behaviour } from "../support/double-host.ts";
import { noNative } from "../support/native.ts";
import { failureOf, until, within } from "../support/wait.ts";
import { cornerItems, differences, nodeCodes, packed, randomItems, Signer } from "./ed25519-cases.ts";

afterAll(forgetHosts);

/** The CPU, which counts. */
class CountingCpu implements Backend {
  readonly name = "cpu";
  jobs = 0;

  serves(): true {
    return true;
  }

  async run({ batch, params, codes }: Job): Promise<void> {
    this.jobs++;
    ed25519.verify(batch, 0, batch.count, params, codes);
  }
}

interface Made {
  readonly gpu: GpuBackend;
  readonly cpu: CountingCpu;
  readonly on: DoubleHost;
}

function make(behaviour: Behaviour = {}, env: Record<string, string> = {}): Made {
  const on = new DoubleHost("cuda", behaviour, {}, { ZAP_VERIFY_GPU_LEAST: "64", ...env });
  const cpu = new CountingCpu();
  const { root } = on.host;
  return { gpu: new GpuBackend(cpu, { env: on.host.env, root, platform: on.host }), cpu, on };
}

interface Asked extends Partial<Job> {
  readonly errors?: ZapError[];
}

async function run(
  backend: Backend,
  batch: PackedBatch,
  { errors, ...more }: Asked = {},
): Promise<Uint8Array> {
  const codes = new Uint8Array(batch.count).fill(0xee);
  await backend.run({
    scheme: "ed25519",
    batch,
    params: DEFAULT_PARAMS,
    codes,
    signal: undefined,
    onDeviceError: (error) => errors?.push(error),
    ...more,
  });
  return codes;
}

/** Nothing was left behind, and nothing misused. */
function expectClean(on: DoubleHost): void {
  const lines = on.reported();
  expect(lines.filter((line) => line.startsWith("fault"))).toEqual([]);
  for (const line of lines) expect(line).toEndWith("blocks=0 bytes=0 streams=0 events=0 modules=0 faults=0");
}

describe.skipIf(noNative || process.platform !== "linux")("the GPU backend", () => {
  const random = packed(randomItems(500, 3));

  test("gives the codes of node:crypto, in any size of batch", async () => {
    const { gpu, cpu, on } = make({ alias: 1 });
    await gpu.warm();
    for (const count of [64, 65, 127, 128, 500]) {
      const batch = { ...random, count };
      expect(differences(await run(gpu, batch), nodeCodes(batch))).toEqual([]);
    }
    const corners = packed(cornerItems());
    expect(differences(await run(gpu, corners), nodeCodes(corners))).toEqual([]);
    expect(cpu.jobs).toBe(0);
    await gpu.close();
    expectClean(on);
  });

  test("leaves small batches to the CPU, unless it is forced", async () => {
    const { gpu, cpu } = make();
    await gpu.warm();
    const small = { ...random, count: 63 };
    const wanted = [...nodeCodes(small)];
    expect([...(await run(gpu, small))]).toEqual(wanted);
    expect(cpu.jobs).toBe(1);
    expect([...(await run(gpu, small, { forced: true }))]).toEqual(wanted);
    expect([...(await run(gpu, { ...random, count: 1 }, { forced: true }))]).toEqual(wanted.slice(0, 1));
    expect(cpu.jobs).toBe(1);
    await gpu.close();
  });

  test("measures from which size on it is faster, where nobody has set it", async () => {
    const { gpu, cpu, on } = make({}, { ZAP_VERIFY_GPU_LEAST: "" });
    expect(gpu.leastItems).toBeNull();
    // Too few to open a device for.
    await run(gpu, { ...random, count: 100 });
    expect([gpu.leastItems, cpu.jobs, on.reported().length]).toEqual([null, 1, 0]);
    await gpu.warm();
    const least = gpu.leastItems!;
    expect(least).toBeGreaterThanOrEqual(64);
    // The double is a CPU, and slower than the CPU.
    const batch = random;
    expect(differences(await run(gpu, batch), nodeCodes(batch))).toEqual([]);
    expect(cpu.jobs).toBe(batch.count < least ? 2 : 1);
    expect(differences(await run(gpu, batch, { forced: true }), nodeCodes(batch))).toEqual([]);
    expect(cpu.jobs).toBe(batch.count < least ? 2 : 1);
    await gpu.close();
    expectClean(on);
    expect(make({}, { ZAP_VERIFY_GPU_LEAST: "77" }).gpu.leastItems).toBe(77);
  });

  test("leaves batches to the CPU while the driver still compiles", async () => {
    const { gpu, cpu } = make({ "delay.cuModuleLoadData": 100, "after.cuModuleLoadData": 1 });
    expect(differences(await run(gpu, random), nodeCodes(random))).toEqual([]);
    expect(cpu.jobs).toBe(1);
    // One that is forced waits for it.
    expect(differences(await run(gpu, random, { forced: true }), nodeCodes(random))).toEqual([]);
    expect(differences(await run(gpu, random), nodeCodes(random))).toEqual([]);
    expect(cpu.jobs).toBe(1);
    await gpu.close();
  });

  test("takes a batch in slices that its memory holds, and an item that is larger than that", async () => {
    const { gpu, cpu, on } = make({ "attribute.89": 0 }, { ZAP_VERIFY_GPU_BYTES: String(1024 * 1024) });
    const signer = new Signer(new Uint8Array(32).fill(9));
    const large = new Uint8Array(1_500_000).fill(7);
    const items = [...randomItems(300, 8, 12_000), signer.item(large), ...randomItems(30, 9)];
    items.push({ ...signer.item(large), message: large.subarray(1) });
    const batch = packed(items);
    expect(batch.bytes.length).toBeGreaterThan(4 * 1024 * 1024);
    const rows = [...batch.table];
    // Out of bounds, and one that shares its parts with another.
    rows.push(
      batch.bytes.length - 31,
      32,
      0,
      0,
      0,
      64,
      ...rows.slice(0, 6),
      0,
      32,
      0xffff_ffff,
      0xffff_ffff,
      32,
      64,
    );
    const odd = { bytes: batch.bytes, table: Uint32Array.from(rows), count: rows.length / 6 };
    const wanted = nodeCodes(odd);
    expect(differences(await run(gpu, odd, { forced: true }), wanted)).toEqual([]);
    // Few items in much memory: they are gathered, too.
    const few = { ...odd, count: 3 };
    expect(differences(await run(gpu, few, { forced: true }), wanted.subarray(0, 3))).toEqual([]);
    expect(cpu.jobs).toBe(0);
    await gpu.close();
    expectClean(on);
  });

  test("verifies what lies in the device's memory where it lies", async () => {
    const { gpu, cpu, on } = make({ alias: 1, kernel_millis: 20 });
    const kind: DeviceMemory = await openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host);
    const pool = new SlabPool(kind, { poolBytes: 64 * 1024 * 1024, debug: false });
    const buffer = pool.tryAlloc(random.bytes.length + 5)!;
    buffer.bytes.set(random.bytes, 5);
    const table = random.table.map((value, at) => (at % 2 === 0 ? value + 5 : value));
    const batch = batchInPlace(buffer, table, random.count);
    const wanted = nodeCodes(random);
    // Until its kernel is there, the CPU reads the same memory.
    expect(differences(await run(gpu, batch), wanted)).toEqual([]);
    expect(cpu.jobs).toBe(1);
    expect(differences(await run(gpu, batch, { forced: true }), wanted)).toEqual([]);
    // A part of the buffer, as an envelope's bytes may be.
    const part = { bytes: buffer.bytes.subarray(5), table: random.table, count: random.count };
    expect(differences(await run(gpu, part), wanted)).toEqual([]);
    expect(cpu.jobs).toBe(1);
    // Released meanwhile: it goes back when the device has finished.
    const verifying = run(gpu, batch);
    buffer.release();
    expect(pool.stats().buffers).toBe(1);
    expect(differences(await verifying, wanted)).toEqual([]);
    await Bun.sleep(0);
    expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 0 });
    expect(await failureOf(run(gpu, batch))).toMatchObject({ code: "ERR_ZAP_CLOSED" });
    expect(() => batchInPlace(buffer, table, random.count)).toThrow("released");
    await gpu.close();
    await pool.close();
    expectClean(on);
  });

  test("has a twin on the CPU, which reads the same memory", async () => {
    for (const vendor of ["cuda", "hip", "metal"] as const) {
      const on = new DoubleHost(vendor);
      const kind = await openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host);
      const [bytes, table, codes] = [random.bytes.length, random.table.byteLength, random.count];
      const tableAt = Math.ceil(bytes / 4) * 4;
      const region = kind.allocRegion(tableAt + table + codes);
      const memory = new Uint8Array(toArrayBuffer(region.address as Pointer, 0, region.bytes));
      memory.set(random.bytes);
      memory.set(new Uint8Array(random.table.buffer), tableAt);
      const span = (offset: number, length: number) => ({ region: region.handle, offset, length });
      const batch = {
        bytes: span(0, bytes),
        table: span(tableAt, table),
        codes: span(tableAt + table, codes),
        count: random.count,
      };
      kind.verifyHost("ed25519", batch);
      expect(differences(memory.slice(tableAt + table), nodeCodes(random))).toEqual([]);
      if (vendor !== "cuda") {
        expect(kind.device.flags.has("verify")).toBe(false);
        expect(() => kind.verifyBegin("ed25519", batch)).toThrow("verify on the CPU");
        expect(() => kind.verifyLoad("ed25519")).toThrow("verify on the CPU");
      }
      region.free();
      kind.close();
      expect(() => kind.verifyHost("ed25519", batch)).toThrow("closed");
    }
  });

  test("a table that is too short is refused", () => {
    const heap = {
      bytes: new Uint8Array(8),
      devicePtr: null,
      owner: "cpu",
      handOver() {},
      release() {},
    } as const;
    expect(() => batchInPlace(heap, new Uint32Array(5), 1)).toThrow("a table of 6 numbers for each");
    expect(batchInPlace(heap, new Uint32Array(6), 1)).toMatchObject({ count: 1 });
  });

  test("two batches at once, and one that is aborted in the middle", async () => {
    const { gpu, on } = make({ kernel_millis: 30 });
    await gpu.warm();
    const other = packed(randomItems(200, 21));
    const [first, second] = await Promise.all([run(gpu, random), run(gpu, other)]);
    expect(differences(first, nodeCodes(random))).toEqual([]);
    expect(differences(second, nodeCodes(other))).toEqual([]);

    const abort = new AbortController();
    const aborted = run(gpu, random, { signal: abort.signal });
    const behind = run(gpu, other);
    setTimeout(() => abort.abort("enough"), 5);
    expect(await failureOf(within(aborted, "the abort"))).toMatchObject({
      code: "ERR_ZAP_ABORTED",
      cause: "enough",
    });
    expect(differences(await behind, nodeCodes(other))).toEqual([]);
    const early = AbortSignal.abort("before");
    expect(await failureOf(run(gpu, random, { signal: early }))).toMatchObject({ code: "ERR_ZAP_ABORTED" });
    await gpu.close();
    expectClean(on);
  });

  for (const [call, part] of [
    ["cuLaunchKernel", "cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED (719)"],
    ["cuEventRecord", "cuEventRecord failed with"],
    ["cuEventQuery", "cuEventQuery failed with"],
  ] as const) {
    test(`a device that fails in ${call} is reported, and the CPU verifies`, async () => {
      // One launch passes, with which the device is tried out; how often that is asked after is not known.
      const isOpened = call !== "cuEventQuery";
      const { gpu, cpu, on } = make({ [`fail.${call}`]: 719, ...(isOpened && { [`after.${call}`]: 1 }) });
      if (isOpened) await gpu.warm();
      const errors: ZapError[] = [];
      const other: ZapError[] = [];
      const both = await Promise.all([run(gpu, random, { errors }), run(gpu, random, { errors: other })]);
      for (const codes of both) expect(differences(codes, nodeCodes(random))).toEqual([]);
      await until(() => errors.length > 0 && other.length > 0, "both reports");
      expect([cpu.jobs, errors.length, other.length]).toEqual([2, 1, 1]);
      expect(errors[0]).toMatchObject({ code: "ERR_ZAP_SHIM" });
      expect(errors[0]!.message).toContain(part);
      // For a while it is not asked again, and says why.
      expect(gpu.serves("ed25519")).toContain(part);
      expect(await failureOf(run(gpu, random, { forced: true }))).toMatchObject({
        code: "ERR_ZAP_NOT_AVAILABLE",
      });
      expect(differences(await run(gpu, random, { errors }), nodeCodes(random))).toEqual([]);
      expect([cpu.jobs, errors.length]).toEqual([3, 1]);
      await gpu.close();
      await Bun.sleep(0);
      expectClean(on);
    });
  }

  test("a device that fails fails a job that is forced", async () => {
    const { gpu, cpu } = make({ "fail.cuLaunchKernel": 719 });
    const errors: ZapError[] = [];
    const failure = await failureOf(run(gpu, random, { forced: true, errors }));
    expect(failure).toMatchObject({ code: "ERR_ZAP_SHIM" });
    expect([cpu.jobs, errors]).toEqual([0, []]);
  });

  test("a listener that throws costs nobody an answer", async () => {
    const { gpu, cpu } = make({ "fail.cuLaunchKernel": 719, "after.cuLaunchKernel": 1 });
    await gpu.warm();
    const thrown: unknown[] = [];
    const { reportError } = globalThis;
    globalThis.reportError = (error: unknown) => void thrown.push(error);
    const codes = await run(gpu, random, {
      onDeviceError: () => {
        throw new Error("mine");
      },
    });
    globalThis.reportError = reportError;
    expect(thrown).toEqual([new Error("mine")]);
    expect(differences(codes, nodeCodes(random))).toEqual([]);
    expect(cpu.jobs).toBe(1);
  });

  for (const [behaviour, part] of [
    [{ "fail.cuInit": 100 }, "cuInit failed"],
    [{ devices: 0 }, "no CUDA-capable device"],
    [{ "fail.cuModuleLoadData": 218 }, "does not run the kernels"],
    [{ "fail.cuModuleLoadData": 218, "after.cuModuleLoadData": 1 }, "cuModuleLoadData failed"],
    [{ memory: 1024 }, "cuMemAllocManaged failed"],
  ] as const) {
    test(`a device that cannot be had (${part}) is reported, and the CPU verifies`, async () => {
      const { gpu, cpu } = make(behaviour);
      const reported = Promise.withResolvers<ZapError>();
      const codes = await run(gpu, random, { onDeviceError: reported.resolve });
      expect(differences(codes, nodeCodes(random))).toEqual([]);
      expect(cpu.jobs).toBe(1);
      expect((await within(reported.promise, "the report")).message).toContain(part);
      expect(gpu.serves("ed25519")).toContain(part);
      expect((await failureOf(make(behaviour).gpu.warm())).message).toContain(part);
    });
  }

  test("a kernel that does not end costs its memory, and nothing else", async () => {
    const { gpu, cpu } = make(
      { kernel_millis: 1_500, "after.kernel_millis": 1 },
      { ZAP_DEVICE_MILLIS: "100" },
    );
    await gpu.warm();
    const errors: ZapError[] = [];
    const start = performance.now();
    expect(differences(await run(gpu, random, { errors }), nodeCodes(random))).toEqual([]);
    expect(performance.now() - start).toBeLessThan(1_200);
    expect(errors.map(({ message }) => message)).toEqual([
      expect.stringContaining("within 100 ms (ZAP_DEVICE_MILLIS)"),
    ]);
    expect(cpu.jobs).toBe(1);
    await gpu.close();
    await Bun.sleep(1_600);
  });

  test("serves Ed25519 where there is a driver, and says why not elsewhere", async () => {
    const cpu = new CountingCpu();
    const { gpu, on } = make();
    expect(gpu.serves("ed25519")).toBe(true);
    expect(gpu.serves("bls12-381")).toBe("no CUDA kernel verifies bls12-381 yet, only ed25519");
    const none = madeUpHost({}, {});
    const bare = new GpuBackend(cpu, {
      env: none.env,
      root: none.root,
      platform: { ...none, platform: "linux" },
    });
    expect(bare.serves("ed25519")).toBe("libcuda.so.1 is not here: install the NVIDIA driver");
    expect(await failureOf(run(bare, random, { forced: true }))).toMatchObject({
      code: "ERR_ZAP_NOT_AVAILABLE",
    });
    expect(await failureOf(bare.warm())).toMatchObject({ code: "ERR_ZAP_NOT_AVAILABLE" });
    expect(differences(await run(bare, random), nodeCodes(random))).toEqual([]);
    const mac = new GpuBackend(cpu, { root: none.root, platform: { ...on.host, platform: "darwin" } });
    expect(mac.serves("ed25519")).toBe("CUDA is for Linux, not darwin");
  });

  test("settings that cannot be used are refused", async () => {
    for (const env of [
      { ZAP_VERIFY_GPU_LEAST: "0" },
      { ZAP_VERIFY_GPU_LEAST: "many" },
      { ZAP_VERIFY_GPU_BYTES: "1000" },
    ])
      expect(await failureOf(run(make({}, env).gpu, random))).toMatchObject({ code: "ERR_ZAP_CONFIG" });
  });
});
