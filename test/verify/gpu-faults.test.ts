/** What goes wrong beside a GPU: its memory is released early or closed, the device fails, or is closed while it is opened. Over a double of the driver. */
import { ptr } from "bun:ffi";
import { afterAll, afterEach, describe, expect, mock, setDefaultTimeout, spyOn, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DeviceMemory, openDeviceMemory, SlabPool } from "../../lib/memory/index.ts";
import { umaRuntime } from "../../lib/transport/probes/uma.ts";
import { VerifyDevice } from "../../lib/verify/backends/gpu-device.ts";
import { ed25519Lengths } from "../../lib/verify/backends/gpu-lengths.ts";
import { batchInPlace } from "../../lib/verify/backends/gpu-place.ts";
import { Stage } from "../../lib/verify/backends/gpu-stage.ts";
import type { Backend, PackedBatch } from "../../lib/verify/contract.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { DoubleHost, type Behaviour } from "../support/double-host.ts";
import { noNative } from "../support/native.ts";
import { failureOf, until, within } from "../support/wait.ts";
import { differences, nodeCodes, packed, randomItems } from "./ed25519-cases.ts";
import { expectClean, GatedCpu, makeGpu, type Made } from "./gpu-kit.ts";
import { resizable } from "./odd-values.ts";

setDefaultTimeout(20_000);
afterEach(() => mock.restore());
afterAll(forgetHosts);

const make = (behaviour?: Behaviour, env?: Record<string, string>): Made<GatedCpu> =>
  makeGpu(new GatedCpu(), behaviour, env);

/** As many as are worth opening a device for, where nobody has set how many. */
const random = packed(randomItems(512, 5));
const wanted = nodeCodes(random);

/** The random batch in memory of somebody else's handle of the device. */
async function inPlace({ on }: Made) {
  const kind = await openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host);
  const pool = new SlabPool(kind, { poolBytes: 64 * 1024 * 1024, debug: false });
  const buffer = pool.tryAlloc(random.bytes.length)!;
  buffer.bytes.set(random.bytes);
  /** Releases the buffer, and writes the next message to it, if the pool has it back. */
  const overtake = async (): Promise<void> => {
    buffer.release();
    await Bun.sleep(0);
    if (pool.stats().buffers > 0) return;
    const next = pool.tryAlloc(random.bytes.length)!;
    next.bytes.fill(7);
    next.release();
  };
  return { kind, pool, buffer, batch: batchInPlace(buffer, random.table, random.count), overtake };
}

function expectBlameless({ gpu, errors }: Made): void {
  expect(errors).toEqual([]);
  expect(gpu.serves("ed25519")).toBe(true);
}

/** Resolves when every device that was to become ready from now on has, or has failed, and who asked for it has seen that. */
function watchReady(): () => Promise<void> {
  const all: Promise<void>[] = [];
  const { ready } = VerifyDevice.prototype;
  spyOn(VerifyDevice.prototype, "ready").mockImplementation(function (this: VerifyDevice) {
    const promise = ready.call(this);
    all.push(promise);
    return promise;
  });
  return async () => {
    await until(() => all.length > 0, "a device that becomes ready");
    await Promise.allSettled(all);
    await Bun.sleep(0);
  };
}

/** Calls `then` as soon as a kernel was launched (or `poll`: was seen to have ended) for the first time from now on. */
function once(verb: "begin" | "ended", then: (memory: DeviceMemory) => void): void {
  const { verifyBegin, verifyPoll } = DeviceMemory.prototype;
  let isDone = false;
  const note = (memory: DeviceMemory): void => {
    if (isDone) return;
    isDone = true;
    then(memory);
  };
  if (verb === "begin")
    spyOn(DeviceMemory.prototype, "verifyBegin").mockImplementation(function (this: DeviceMemory, ...args) {
      note(this);
      return verifyBegin.apply(this, args);
    });
  else
    spyOn(DeviceMemory.prototype, "verifyPoll").mockImplementation(function (this: DeviceMemory, job) {
      const ended = verifyPoll.call(this, job);
      if (ended) note(this);
      return ended;
    });
}

describe.skipIf(noNative || process.platform !== "linux")("beside a GPU", () => {
  describe("a batch in place that is released early, and that the CPU verifies", () => {
    const CASES: Readonly<Record<string, [behaviour: Behaviour, least: string, reports: number]>> = {
      "the device is not ready": [{}, "64", 0],
      "it is too small for the device": [{}, "1000", 0],
      // The sample and the first batch pass.
      "the device fails": [{ "fail.cuLaunchKernel": 719, "after.cuLaunchKernel": 2 }, "64", 1],
      "the CPU was asked for": [{}, "64", 0],
    };
    test.each(Object.entries(CASES))("because %s", async (name, [behaviour, least, reports]) => {
      const made = make(behaviour, { ZAP_VERIFY_GPU_LEAST: least });
      const { gpu, cpu, errors, ask } = made;
      const { pool, batch, overtake } = await inPlace(made);
      if (reports > 0) expect(differences(await ask(batch, { forced: true }), wanted)).toEqual([]);
      const open = cpu.shut();
      const answer = ask(batch, {}, name === "the CPU was asked for" ? cpu : gpu);
      if (reports > 0) await until(() => cpu.jobs > 0, "the CPU's turn");
      await overtake();
      expect(cpu.jobs).toBe(1);
      expect(pool.stats().buffers).toBe(1);
      open();
      expect(differences(await answer, wanted)).toEqual([]);
      await Bun.sleep(0);
      expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 0 });
      expect(errors).toHaveLength(reports);
      expect(await failureOf(ask(batch))).toMatchObject({ code: "ERR_ZAP_CLOSED" });
      await gpu.close();
      await pool.close();
    });

    test("goes back also where nobody verifies it", async () => {
      const made = make();
      const { pool, buffer, batch } = await inPlace(made);
      const failing: Backend = {
        name: "cpu",
        serves: () => true,
        run: () => Promise.reject(new Error("no")),
      };
      expect(await failureOf(made.ask(batch, {}, failing))).toMatchObject({ code: "ERR_ZAP_VERIFY" });
      buffer.release();
      expect(pool.stats().buffers).toBe(0);
      await pool.close();
    });
  });

  describe("a batch that is released while the CPU has it in the device's place", () => {
    const WAYS: Readonly<Record<string, () => [batch: PackedBatch, take: () => void]>> = {
      "bytes that are transferred": () => {
        const bytes = new Uint8Array(random.bytes);
        return [{ ...random, bytes }, () => void bytes.buffer.transfer()];
      },
      "bytes that shrink": () => {
        const [bytes, buffer] = resizable(random.bytes);
        return [{ ...random, bytes }, () => buffer.resize(10)];
      },
      "a table that is transferred": () => {
        const table = new Uint32Array(random.table);
        return [{ ...random, table }, () => void table.buffer.transfer()];
      },
    };
    describe.each(Object.entries(WAYS))("%s", (_, way) => {
      test("before: the device had copied it, and failed", async () => {
        const { gpu, cpu, ask } = make({ "fail.cuLaunchKernel": 719, "after.cuLaunchKernel": 1 });
        await gpu.warm();
        const [batch, take] = way();
        once("begin", take);
        expect(await failureOf(ask(batch))).toMatchObject({ name: "ReleasedError", code: "ERR_ZAP_VERIFY" });
        expect(cpu.jobs).toBe(0);
        await gpu.close();
      });

      for (const fails of [true, false])
        test(`meanwhile: the device ${fails ? "has failed" : "is not ready"}`, async () => {
          const { gpu, cpu, ask } = make(
            fails ? { "fail.cuLaunchKernel": 719, "after.cuLaunchKernel": 1 } : {},
          );
          if (fails) await gpu.warm();
          const open = cpu.shut();
          const [batch, take] = way();
          const answer = ask(batch);
          answer.catch(() => {});
          await until(() => cpu.jobs > 0, "the CPU's turn");
          take();
          open();
          expect(await failureOf(answer)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
          await gpu.close();
        });
    });
  });

  describe("a close is no fault of the device", () => {
    test("of somebody else's memory, while the driver compiles", async () => {
      const made = make({ "delay.cuModuleLoadData": 40 });
      const { kind, pool, buffer, batch } = await inPlace(made);
      const settled = watchReady();
      expect(differences(await made.ask(batch), wanted)).toEqual([]);
      expect(made.cpu.jobs).toBe(1);
      buffer.release();
      await pool.close();
      expect(() => kind.fenceToHost()).toThrow("closed");
      await settled();
      expectBlameless(made);
      expect(differences(await made.ask(random, { forced: true }), wanted)).toEqual([]);
      await made.gpu.close();
      expectClean(made.on);
    });

    // The others: before anybody has looked at the codes, and before the next launch.
    for (const [when, verb, least] of [
      ["while it is tried out", "begin", "64"],
      ["in the moment in which it was tried out", "ended", "64"],
      ["between the launches that are timed", "ended", ""],
    ] as const) {
      test(`of somebody else's memory, ${when}`, async () => {
        const made = make(verb === "begin" ? { kernel_millis: 30 } : {}, { ZAP_VERIFY_GPU_LEAST: least });
        const { pool, buffer, batch } = await inPlace(made);
        const settled = watchReady();
        const closed = Promise.withResolvers<unknown>();
        once(verb, () => {
          buffer.release();
          queueMicrotask(() => closed.resolve(pool.close()));
        });
        expect(differences(await made.ask(batch), wanted)).toEqual([]);
        await within(closed.promise, "the pool's end");
        await settled();
        expectBlameless(made);
        await made.gpu.close();
        expectClean(made.on);
      });

      test(`of the backend, ${when}`, async () => {
        const made = make(verb === "begin" ? { kernel_millis: 30 } : {}, { ZAP_VERIFY_GPU_LEAST: least });
        const settled = watchReady();
        const closed = Promise.withResolvers<void>();
        once(verb, () => closed.resolve(made.gpu.close()));
        const forced = failureOf(made.ask(random, { forced: true }));
        expect(differences(await made.ask(random), wanted)).toEqual([]);
        expect(await forced).toMatchObject({ code: "ERR_ZAP_CLOSED" });
        await within(closed.promise, "the close");
        await settled();
        expectBlameless(made);
        expect(differences(await made.ask(random, { forced: true }), wanted)).toEqual([]);
        await made.gpu.close();
        expectClean(made.on);
      });
    }
  });

  test("a backend that is closed while a kernel does not end does not wait for the driver", async () => {
    const made = make({ kernel_millis: 700 }, { ZAP_DEVICE_MILLIS: "100" });
    const closed = Promise.withResolvers<void>();
    once("begin", () => closed.resolve(made.gpu.close()));
    expect(await failureOf(made.ask(random, { forced: true }))).toMatchObject({ code: "ERR_ZAP_TIMEOUT" });
    await within(closed.promise, "the close");
    // The double's thread must have ended before its folder goes.
    await Bun.sleep(800);
  });

  describe("the backend is closed while its device is opened", () => {
    /** How often the double's device was opened, and closed. */
    function watchOpen(on: DoubleHost): () => [opened: number, closed: number] {
      const trace = join(on.host.root, "trace");
      on.behave({ trace });
      return () => {
        const calls = existsSync(trace) ? readFileSync(trace, "utf8").split("\n") : [];
        const count = (name: string): number => calls.filter((call) => call === name).length;
        return [count("cuDevicePrimaryCtxRetain"), count("cuDevicePrimaryCtxRelease_v2")];
      };
    }

    test("then nothing is open, nobody is to blame, and the next batch opens it", async () => {
      const made = make();
      const opens = watchOpen(made.on);
      const forced = failureOf(made.ask(random, { forced: true }));
      const free = made.ask(random);
      await made.gpu.close();
      expect(opens()).toEqual([1, 1]);
      expect(await forced).toMatchObject({ code: "ERR_ZAP_CLOSED" });
      expect(differences(await free, wanted)).toEqual([]);
      expectBlameless(made);
      expect(differences(await made.ask(random, { forced: true }), wanted)).toEqual([]);
      expect(opens()).toEqual([2, 1]);
      await made.gpu.close();
      expect(opens()).toEqual([2, 2]);
      expectClean(made.on);
    });

    test("and a batch comes meanwhile: it has a device of its own, which stays", async () => {
      const made = make();
      const opens = watchOpen(made.on);
      const first = failureOf(made.ask(random, { forced: true }));
      const closed = made.gpu.close();
      const second = made.ask(random, { forced: true });
      expect(await first).toMatchObject({ code: "ERR_ZAP_CLOSED" });
      await closed;
      expect(differences(await second, wanted)).toEqual([]);
      expect(opens()).toEqual([2, 1]);
      // The one that is there, and not another.
      expect(differences(await made.ask(random), wanted)).toEqual([]);
      expect([...opens(), made.cpu.jobs]).toEqual([2, 1, 0]);
      expectBlameless(made);
      await made.gpu.close();
      expect(opens()).toEqual([2, 2]);
      expectClean(made.on);
    });

    test("and it cannot be opened: that is told, and nothing is open", async () => {
      const made = make({ "fail.cuInit": 100 });
      const answer = failureOf(made.ask(random, { forced: true }));
      await made.gpu.close();
      expect((await answer).message).toContain("cuInit failed");
    });
  });

  describe("the device of somebody else's memory fails after it was tried out", () => {
    /** Bytes that were allocated from now on, and are not free yet. */
    function watchBytes(kind: DeviceMemory): () => number {
      let live = 0;
      const alloc = kind.allocRegion.bind(kind);
      spyOn(kind, "allocRegion").mockImplementation((bytes) => {
        const region = alloc(bytes);
        const free = region.free.bind(region);
        live += bytes;
        spyOn(region, "free").mockImplementation(() => {
          live -= bytes;
          return free();
        });
        return region;
      });
      return () => live;
    }

    test("and what was taken of that memory goes back", async () => {
      const made = make({ "fail.cuLaunchKernel": 719, "after.cuLaunchKernel": 2 });
      const { kind, pool, buffer, batch } = await inPlace(made);
      const live = watchBytes(kind);
      expect(differences(await made.ask(batch, { forced: true }), wanted)).toEqual([]);
      expect(live()).toBeGreaterThan(0);
      // Two at once: both fail.
      const both = await Promise.all([made.ask(batch), made.ask(batch)]);
      for (const codes of both) expect(differences(codes, wanted)).toEqual([]);
      expect(made.cpu.jobs).toBe(2);
      await Bun.sleep(0);
      expect(live()).toBe(0);
      buffer.release();
      await pool.close();
      await made.gpu.close();
      expectClean(made.on);
    });

    test("but not while its kernel may still run", async () => {
      const made = make({ kernel_millis: 900, "after.kernel_millis": 2 }, { ZAP_DEVICE_MILLIS: "200" });
      const { kind, batch: whole } = await inPlace(made);
      // A launch is soon over, except for the last.
      const [batch, codes] = [{ ...whole, count: 64 }, wanted.subarray(0, 64)];
      const live = watchBytes(kind);
      expect(differences(await made.ask(batch, { forced: true }), codes)).toEqual([]);
      const before = live();
      expect(before).toBeGreaterThan(0);
      expect(differences(await made.ask(batch), codes)).toEqual([]);
      expect(made.errors.map((error) => error.code)).toEqual(["ERR_ZAP_TIMEOUT"]);
      await Bun.sleep(0);
      expect(live()).toBe(before);
      await made.gpu.close();
      // The double's thread must have ended before its memory goes.
      await Bun.sleep(1_000);
      kind.close();
      for (const line of made.on.reported()) expect(line).toEndWith("faults=0");
    });
  });
});

describe("items that are gathered", () => {
  const MIB = 1024 * 1024;

  /** A stage in plain memory, and that memory. */
  function stageOf(bytes: number, items: number): [stage: Stage, memory: Uint8Array] {
    const memory = new Uint8Array(bytes + 64 + items * 25);
    const device = {
      allocRegion: (size: number) => {
        expect(size).toBeLessThanOrEqual(memory.length);
        return { address: ptr(memory), bytes: size, handle: 1, handleOffset: 0, free() {} };
      },
    };
    return [new Stage(device as unknown as DeviceMemory, bytes, items), memory];
  }

  for (const [message, count, turns] of [
    // An item has its turns while it is copied, and one after it.
    [10 * MIB, 3, 3 * 10],
    [3 * MIB + 5, 4, 4 * 4],
    // Many small ones: after each mebibyte, and after 256 items at the latest.
    [100_000, 50, 4],
    [0, 1024, 4],
  ] as const) {
    test(`${count} of ${message} bytes: the event loop has its turn after a mebibyte or two`, async () => {
      const bytes = new Uint8Array(message + 96);
      for (let at = 0; at < bytes.length; at += 4_096) bytes[at] = at / 4_096;
      const table = new Uint32Array(6 * count);
      for (let at = 0; at < count; at++) table.set([message, 32, 0, message, message + 32, 64], 6 * at);
      let sinceTurn = 0;
      let most = 0;
      let seen = 0;
      const turn = (): null => {
        sinceTurn = 0;
        seen++;
        return null;
      };
      spyOn(bytes, "subarray").mockImplementation((from = 0, to = bytes.length) => {
        sinceTurn += to - from;
        most = Math.max(most, sinceTurn);
        return new Uint8Array(bytes.buffer, from, to - from);
      });
      const size = message + 96;
      const [stage, memory] = stageOf(size * count, count);
      const slice = await stage.gather({ bytes, table, count }, 0, ed25519Lengths, turn);
      expect(slice).toMatchObject({ from: 0, to: count, bytes: size * count });
      expect(seen).toBe(turns);
      expect(most).toBeLessThan(2 * MIB);
      mock.restore();
      const item = Buffer.concat([
        bytes.subarray(message, message + 32),
        bytes.subarray(0, message),
        bytes.subarray(message + 32),
      ]);
      for (let at = 0; at < count; at++)
        expect(item.equals(memory.subarray(at * size, (at + 1) * size))).toBe(true);
    });
  }
});
