import { describe, expect, test } from "bun:test";
import { AbortedError, ClosedError, ConfigError } from "../../lib/errors/index.ts";
import { SlabPool, type LeakReport } from "../../lib/memory/index.ts";
import { gate, isPending, KIB, KindDouble, MIB } from "./kind-double.ts";

function poolOf(poolBytes = 64 * MIB) {
  const kind = new KindDouble();
  const reports: LeakReport[] = [];
  const onLeak = (report: LeakReport): void => void reports.push(report);
  return { kind, reports, pool: new SlabPool(kind, { poolBytes, debug: false, onLeak }) };
}

describe("close", () => {
  test("gives everything back and closes the kind, once", async () => {
    const { pool, kind } = poolOf();
    for (const size of [1, MIB, 3 * MIB]) pool.tryAlloc(size)!.release();
    expect(kind.liveBytes).toBeGreaterThan(0);
    expect(await pool.close()).toEqual({ buffers: 0, bytes: 0 });
    expect(kind.liveBytes).toBe(0);
    expect(await pool.close({ outstanding: "wait" })).toEqual({ buffers: 0, bytes: 0 });
    expect(kind.closed).toBe(1);
  });

  test("rejects those who wait and those who come later", async () => {
    const { pool } = poolOf(MIB);
    pool.tryAlloc(MIB);
    const waiting = pool.alloc(1);
    const controller = new AbortController();
    const withSignal = pool.alloc(1, { signal: controller.signal });
    void pool.close();
    await expect(waiting).rejects.toThrow(ClosedError);
    await expect(withSignal).rejects.toThrow("alloc: the pool was closed");
    controller.abort();
    await expect(pool.alloc(1)).rejects.toThrow("alloc: the pool is closed");
    expect(() => pool.tryAlloc(1)).toThrow(ClosedError);
    expect(pool.stats().waiting).toBe(0);
  });

  test("that reports says what is out, and never frees under a reader", async () => {
    const { pool, kind } = poolOf();
    const small = pool.tryAlloc(4 * KIB)!;
    const large = pool.tryAlloc(2 * MIB)!;
    const idle = pool.tryAlloc(3 * MIB)!;
    small.bytes.fill(1);
    large.bytes.fill(2);
    idle.release();
    const report = await pool.close({ outstanding: "report" });
    expect(report).toEqual({ buffers: 2, bytes: 2 * MIB + 4 * KIB });
    expect([...kind.live].map(({ bytes }) => bytes).sort()).toEqual([2 * MIB, 4 * MIB]);
    expect(kind.closed).toBe(0);
    expect(small.bytes.every((byte) => byte === 1)).toBe(true);
    expect(large.bytes.every((byte) => byte === 2)).toBe(true);
    const view = small.bytes;
    small.release();
    expect(view).toHaveLength(0);
    expect(kind.liveBytes).toBe(2 * MIB);
    expect(kind.closed).toBe(0);
    expect(large.bytes[0]).toBe(2);
    large.release();
    expect(kind.liveBytes).toBe(0);
    expect(kind.closed).toBe(1);
    large.release();
    expect(kind.closed).toBe(1);
  });

  test("that waits resolves with the last release, and not before", async () => {
    const { pool, kind } = poolOf();
    const buffers = [pool.tryAlloc(1)!, pool.tryAlloc(1)!];
    const closed = pool.close({ outstanding: "wait" });
    buffers[0]!.release();
    expect(await isPending(closed)).toBe(true);
    expect(buffers[1]!.bytes).toHaveLength(1);
    buffers[1]!.release();
    expect(await closed).toEqual({ buffers: 0, bytes: 0 });
    expect(kind.closed).toBe(1);
  });

  test("may stop waiting; the pool stays closed and ends with the last release", async () => {
    const { pool, kind } = poolOf();
    const buffer = pool.tryAlloc(1)!;
    const controller = new AbortController();
    const closed = pool.close({ outstanding: "wait", signal: controller.signal });
    controller.abort();
    await expect(closed).rejects.toThrow(AbortedError);
    await expect(pool.close({ outstanding: "wait", signal: AbortSignal.abort() })).rejects.toThrow(
      AbortedError,
    );
    const again = pool.close({ outstanding: "wait" });
    buffer.release();
    expect(await again).toEqual({ buffers: 0, bytes: 0 });
    expect(kind.closed).toBe(1);
  });

  test("may report first and wait later", async () => {
    const { pool } = poolOf();
    const buffer = pool.tryAlloc(1)!;
    expect(await pool.close()).toEqual({ buffers: 1, bytes: 256 });
    const closed = pool.close({ outstanding: "wait" });
    expect(await isPending(closed)).toBe(true);
    buffer.release();
    await closed;
  });

  test("waits for what the GPU still has", async () => {
    const { pool, kind } = poolOf();
    const buffer = pool.tryAlloc(1)!;
    void buffer.handOver("gpu");
    const kernel = gate();
    kind.fence = () => kernel.promise;
    buffer.release();
    const closed = pool.close({ outstanding: "wait" });
    expect(await isPending(closed)).toBe(true);
    expect(kind.live.size).toBe(1);
    kernel.open();
    expect(await closed).toEqual({ buffers: 0, bytes: 0 });
    expect(kind.live.size).toBe(0);
  });

  test("refuses a choice that it does not know", async () => {
    const { pool } = poolOf();
    await expect(pool.close({ outstanding: "free" as never })).rejects.toThrow(ConfigError);
    expect(pool.tryAlloc(1)).not.toBeNull();
  });

  test("rejects with what the kind fails to close with", async () => {
    const { pool, kind } = poolOf();
    kind.closeError = new Error("the driver is gone");
    await expect(pool.close()).rejects.toThrow("the driver is gone");
  });

  test("reports a kind that fails to close with the last release, when nobody asks", async () => {
    const { pool, kind, reports } = poolOf();
    const buffer = pool.tryAlloc(1)!;
    await pool.close();
    kind.closeError = new Error("the driver is gone");
    buffer.release();
    await Bun.sleep(1);
    expect(reports).toEqual([{ cause: "device", buffers: 0, bytes: 0, stack: null, error: kind.closeError }]);
  });
});
