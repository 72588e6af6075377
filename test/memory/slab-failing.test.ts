import { describe, expect, test } from "bun:test";
import { SlabPool, type LeakReport, type SlabBuffer } from "../../lib/memory/index.ts";
import { drain, isPending, KIB, KindDouble, MIB, OutOfMemory } from "./kind-double.ts";

function poolOf(memoryBytes = Infinity, poolBytes = 0) {
  const kind = new KindDouble();
  kind.memoryBytes = memoryBytes;
  const reports: LeakReport[] = [];
  const onLeak = (report: LeakReport): void => void reports.push(report);
  return { kind, reports, pool: new SlabPool(kind, { poolBytes, debug: false, onLeak }) };
}

describe("a kind that has no more memory", () => {
  test("says so at once when nothing is out that could come back", async () => {
    const { pool } = poolOf(100 * KIB);
    await expect(pool.alloc(MIB)).rejects.toThrow(OutOfMemory);
    await expect(pool.alloc(2 * MIB)).rejects.toThrow("the device has no 2097152 bytes");
    expect(() => pool.tryAlloc(MIB)).toThrow(OutOfMemory);
    expect(pool.stats()).toMatchObject({ reservedBytes: 0, buffers: 0, waiting: 0 });
  });

  test("is asked for less, as long as that is enough", () => {
    const { pool, kind } = poolOf(3 * MIB);
    expect(drain(pool, MIB)).toHaveLength(3);
    expect(kind.liveBytes).toBe(3 * MIB);
    const small = poolOf(100 * KIB);
    expect(drain(small.pool, 4 * KIB)).toHaveLength(25);
  });

  test("is asked for whole regions again when it has memory again", () => {
    const { pool, kind } = poolOf(2 * MIB);
    const all = drain(pool, MIB);
    kind.memoryBytes = Infinity;
    for (let i = 0; i < 30; i++) all.push(pool.tryAlloc(MIB)!);
    expect([...kind.live].map(({ bytes }) => bytes / MIB)).toEqual([2, 1, 2, 4, 8, 16]);
  });

  test("makes one wait while something is out, and is asked again when a region is idle", async () => {
    const { pool, kind } = poolOf(4 * MIB);
    const held = drain(pool, MIB);
    expect(held).toHaveLength(4);
    const large = pool.alloc(3 * MIB);
    expect(await isPending(large)).toBe(true);
    const { asked } = kind;
    held[0]!.release();
    expect(await isPending(large)).toBe(true);
    for (const buffer of held) buffer.release();
    expect((await large).bytes).toHaveLength(3 * MIB);
    expect(kind.asked - asked).toBeLessThan(12);
  });

  test("tells the one who waits when the last buffer came back and it still has none", async () => {
    const { pool, kind } = poolOf();
    const held = pool.tryAlloc(1)!;
    kind.failing = () => true;
    const waiting = [pool.alloc(17 * MIB), pool.alloc(18 * MIB), pool.alloc(MIB)];
    expect(await isPending(Promise.race(waiting))).toBe(true);
    held.release();
    const results = await Promise.allSettled(waiting);
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
    expect((results[1] as PromiseRejectedResult).reason).toBeInstanceOf(OutOfMemory);
    kind.failing = () => false;
    expect(pool.tryAlloc(MIB)).not.toBeNull();
  });

  test("is asked a last time when all that was out is lost", async () => {
    const { pool, kind } = poolOf(MIB);
    const held = pool.tryAlloc(MIB)!;
    const waiting = pool.alloc(MIB);
    expect(await isPending(waiting)).toBe(true);
    kind.memoryBytes = Infinity;
    (held.bytes.buffer as ArrayBuffer).transfer();
    held.release();
    expect((await waiting).bytes).toHaveLength(MIB);
  });

  test("gets idle memory back before it is asked again", () => {
    const { pool, kind } = poolOf(20 * MIB);
    pool.tryAlloc(1)!.release();
    pool.tryAlloc(2 * MIB)!.release();
    expect(kind.liveBytes).toBe(18 * MIB);
    expect(pool.tryAlloc(20 * MIB)!.bytes).toHaveLength(20 * MIB);
    expect(kind.live.size).toBe(1);
  });

  test("is not asked over and over for what it has refused", async () => {
    const { pool, kind } = poolOf(16 * MIB);
    const held = drain(pool, 4 * KIB);
    const large = pool.alloc(2 * MIB);
    const { asked } = kind;
    for (const buffer of held.slice(0, 4_000)) buffer.release();
    expect(kind.asked).toBe(asked);
    for (const buffer of held) buffer.release();
    expect((await large).bytes).toHaveLength(2 * MIB);
  });

  test.each([1, 2, 3, 4, 5])("at region %d: nothing is lost, and all goes on", async (nth) => {
    const { pool, kind } = poolOf(Infinity, 8 * MIB);
    kind.failing = (region) => region === nth;
    const held: SlabBuffer[] = [];
    const outcomes: string[] = [];
    for (let i = 0; held.length < 8; i++) {
      try {
        const buffer = pool.tryAlloc(MIB);
        if (buffer !== null) held.push(buffer);
        outcomes.push(buffer === null ? "would wait" : "given");
      } catch (error) {
        expect(error).toBeInstanceOf(OutOfMemory);
        outcomes.push("failed");
      }
    }
    // The first has nobody to wait for.
    const expected = Array.from({ length: 9 }, (_, i): string => (i === nth - 1 ? "would wait" : "given"));
    if (nth === 1) expected[0] = "failed";
    expect(outcomes).toEqual(expected);
    expect(pool.stats()).toMatchObject({ reservedBytes: 8 * MIB, usedBytes: 8 * MIB });
    for (const buffer of held) buffer.release();
    expect(await pool.close()).toEqual({ buffers: 0, bytes: 0 });
    expect(kind.live.size).toBe(0);
  });
});

test("a region that the kind fails to free is lost, and said so", async () => {
  const { pool, kind, reports } = poolOf(Infinity, 4 * MIB);
  pool.tryAlloc(2 * MIB)!.release();
  kind.freeError = new Error("the driver is gone");
  expect(() => pool.tryAlloc(4 * MIB)).toThrow("2097152 of the pool's 4194304 bytes are lost");
  expect(pool.stats()).toMatchObject({ lostBytes: 2 * MIB, reservedBytes: 2 * MIB });
  await Bun.sleep(1);
  expect(reports).toEqual([
    { cause: "device", buffers: 0, bytes: 2 * MIB, stack: null, error: kind.freeError },
  ]);
  expect(pool.tryAlloc(MIB)).not.toBeNull();
});
