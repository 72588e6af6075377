import { describe, expect, test } from "bun:test";
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { ConfigError, OwnerError } from "../../lib/errors/index.ts";
import { debugMode, SlabPool } from "../../lib/memory/index.ts";
import { gate, KIB, KindDouble, MIB } from "./kind-double.ts";

function poolOf(debug = true, poolBytes = 16 * KIB) {
  const kind = new KindDouble();
  return { kind, pool: new SlabPool(kind, { poolBytes, debug, onLeak: () => {} }) };
}

/** The memory itself, past every view. */
function peek(address: number, bytes: number): Uint8Array {
  return new Uint8Array(toArrayBuffer(address as Pointer, 0, bytes));
}

describe("debug mode", () => {
  test("fills what is released with 0xDB, as far as it was asked for", () => {
    const { pool } = poolOf();
    const buffer = pool.tryAlloc(1_000)!;
    const memory = peek(buffer.address, KIB);
    buffer.bytes.fill(1);
    expect(memory.subarray(0, 1_000).every((byte) => byte === 1)).toBe(true);
    buffer.release();
    expect(memory.subarray(0, 1_000).every((byte) => byte === 0xdb)).toBe(true);
    expect(memory.subarray(1_000).every((byte) => byte === 0)).toBe(true);
  });

  test("fills it also when nobody looked, and after a hand-over", async () => {
    const { pool } = poolOf();
    const untouched = pool.tryAlloc(256)!;
    const handed = pool.tryAlloc(256)!;
    const memory = [peek(untouched.address, 256), peek(handed.address, 256)];
    handed.bytes.fill(1);
    void handed.handOver("gpu");
    for (const buffer of [untouched, handed]) buffer.release();
    expect(memory.every((bytes) => bytes.every((byte) => byte === 0xdb))).toBe(true);
  });

  test("empties every view of what is released, so that nobody sees the next owner's bytes", () => {
    const { pool } = poolOf(true, 256);
    const buffer = pool.tryAlloc(200)!;
    const views = [buffer.bytes, buffer.bytes.subarray(10, 20), new DataView(buffer.bytes.buffer)];
    expect(buffer.bytes.buffer.byteLength).toBe(200);
    buffer.release();
    const next = pool.tryAlloc(200)!;
    next.bytes.fill(9);
    expect(views[0]).toHaveLength(0);
    expect((views[0] as Uint8Array)[0]).toBeUndefined();
    expect(views[1]).toHaveLength(0);
    expect(() => (views[2] as DataView).getUint8(0)).toThrow(TypeError);
    expect(() => (views[0] as Uint8Array).set([1])).toThrow(TypeError);
    expect(next.bytes.every((byte) => byte === 9)).toBe(true);
  });

  test("throws when the CPU touches what others own, and empties the views that it had", () => {
    const { pool } = poolOf();
    const buffer = pool.tryAlloc(100)!;
    const view = buffer.bytes.fill(5);
    for (const other of ["gpu", "nic"] as const) {
      void buffer.handOver(other);
      expect(() => buffer.bytes).toThrow(OwnerError);
      expect(() => buffer.bytes).toThrow(`buffer.bytes: the ${other} owns it`);
      expect(view).toHaveLength(0);
      expect(buffer.devicePtr).not.toBeNull();
      void buffer.handOver("cpu");
      expect(buffer.bytes).toHaveLength(100);
      expect(buffer.bytes.every((byte) => byte === 5)).toBe(true);
    }
  });

  test("throws in the middle of a hand-over, whichever way it goes", async () => {
    const { pool, kind } = poolOf();
    const buffer = pool.tryAlloc(100)!;
    for (const to of ["gpu", "cpu"] as const) {
      const fence = gate();
      kind.fence = () => fence.promise;
      const done = buffer.handOver(to);
      expect(() => buffer.bytes).toThrow(OwnerError);
      fence.open();
      await done;
    }
    expect(buffer.bytes).toHaveLength(100);
  });

  test("throws when what a NIC writes to is released, and keeps it", () => {
    const { pool } = poolOf();
    const buffer = pool.tryAlloc(100)!;
    void buffer.handOver("nic");
    expect(() => buffer.release()).toThrow(OwnerError);
    expect(pool.stats().buffers).toBe(1);
    void buffer.handOver("cpu");
    buffer.release();
    expect(pool.stats().buffers).toBe(0);
  });

  test("waits for the GPU before it fills what was released", async () => {
    const { pool, kind } = poolOf();
    const buffer = pool.tryAlloc(256)!;
    const memory = peek(buffer.address, 256);
    void buffer.handOver("gpu");
    const kernel = gate();
    kind.fence = () => kernel.promise;
    buffer.release();
    memory.fill(7);
    await Bun.sleep(0);
    expect(memory[0]).toBe(7);
    kernel.open();
    await Bun.sleep(0);
    expect(memory[0]).toBe(0xdb);
  });

  test("is off unless it is asked for: a kept view then shows what the next owner writes", () => {
    const { pool } = poolOf(false, 256);
    const buffer = pool.tryAlloc(256)!;
    const kept = buffer.bytes.fill(1);
    void buffer.handOver("gpu");
    expect(buffer.bytes).toBe(kept);
    buffer.release();
    expect(kept[0]).toBe(1);
    pool.tryAlloc(256)!.bytes.fill(2);
    expect(kept[0]).toBe(2);
  });
});

describe("ZAP_DEBUG", () => {
  test.each([
    [undefined, false],
    ["", false],
    ["0", false],
    ["no", false],
    ["1", true],
    [" True ", true],
    ["yes", true],
  ])("of %p is %p", (value, on) => {
    expect(debugMode(value === undefined ? {} : { ZAP_DEBUG: value })).toBe(on);
  });

  test("of anything else is an error", () => {
    expect(() => debugMode({ ZAP_DEBUG: "on!" })).toThrow(ConfigError);
    expect(() => debugMode({ ZAP_DEBUG: "on!" })).toThrow('ZAP_DEBUG is "on!"');
  });

  test("is what a pool goes by that is told nothing", () => {
    const before = process.env["ZAP_DEBUG"];
    process.env["ZAP_DEBUG"] = "1";
    try {
      expect(new SlabPool(new KindDouble(), { poolBytes: MIB }).debug).toBe(true);
      expect(new SlabPool(new KindDouble(), { poolBytes: MIB, debug: false }).debug).toBe(false);
    } finally {
      if (before === undefined) delete process.env["ZAP_DEBUG"];
      else process.env["ZAP_DEBUG"] = before;
    }
    expect(new SlabPool(new KindDouble(), { poolBytes: MIB }).debug).toBe(debugMode());
  });
});
