import { describe, expect, test } from "bun:test";
import { PoolError } from "../../lib/errors/index.ts";
import { heapKind, SlabPool, umaPoolBytes, type SlabBuffer } from "../../lib/memory/index.ts";
import { drain, isPending, KIB, KindDouble, MIB } from "./kind-double.ts";

function poolOf(poolBytes: number): { pool: SlabPool; kind: KindDouble } {
  const kind = new KindDouble();
  return { kind, pool: new SlabPool(kind, { poolBytes, debug: false, onLeak: () => {} }) };
}

function releaseAll(buffers: readonly SlabBuffer[]): void {
  for (const buffer of buffers) buffer.release();
}

describe("a pool of a few bytes", () => {
  test("of 100 serves what fits, exactly, and makes the next one wait", async () => {
    const { pool, kind } = poolOf(100);
    const halves = [pool.tryAlloc(50)!, pool.tryAlloc(50)!];
    expect(pool.stats()).toMatchObject({ usedBytes: 100, reservedBytes: 100 });
    expect(pool.tryAlloc(1)).toBeNull();
    const whole = pool.alloc(100);
    halves[0]!.release();
    expect(await isPending(whole)).toBe(true);
    halves[1]!.release();
    expect((await whole).bytes).toHaveLength(100);
    expect(kind.peakBytes).toBe(100);
    await expect(pool.alloc(101)).rejects.toThrow(PoolError);
  });

  test("of 1 byte serves one byte", () => {
    const { pool } = poolOf(1);
    for (let i = 0; i < 3; i++) {
      const byte = pool.tryAlloc(1)!;
      expect(byte.bytes).toHaveLength(1);
      expect(pool.tryAlloc(1)).toBeNull();
      byte.release();
    }
  });

  test("serves exactly what finds no room for its slab, but would itself", () => {
    const { pool, kind } = poolOf(1_000);
    const all = drain(pool, 300);
    expect(all).toHaveLength(3);
    expect(pool.tryAlloc(101)).toBeNull();
    const rest = pool.tryAlloc(100)!;
    expect(rest.bytes).toHaveLength(100);
    expect(kind.liveBytes).toBe(1_000);
    releaseAll([...all, rest]);
    expect(pool.tryAlloc(1_000)!.bytes).toHaveLength(1_000);
    expect(kind.peakBytes).toBe(1_000);
  });

  test.each([255, 256, 257, 1_023, 1_025, 4_097, 20_000, 65_537, MIB - 1, MIB + 1, 20 * MIB + 77])(
    "of %d can be handed out whole, in one piece and in pieces of every class, over and over",
    (poolBytes) => {
      const { pool, kind } = poolOf(poolBytes);
      for (let round = 0; round < 2; round++) {
        for (const size of [256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB, poolBytes]) {
          const all = drain(pool, Math.min(size, poolBytes));
          expect(all).toHaveLength(Math.max(1, Math.floor(poolBytes / size)));
          releaseAll(all);
        }
      }
      expect(kind.peakBytes).toBeLessThanOrEqual(poolBytes);
    },
  );
});

describe("a pool of 0", () => {
  test("has no bound, and never makes anybody wait", async () => {
    const { pool, kind } = poolOf(0);
    expect(pool.poolBytes).toBe(0);
    for (let i = 0; i < 100; i++) {
      expect((await pool.alloc(2 * MIB)).bytes).toHaveLength(2 * MIB);
      pool.tryAlloc(MIB)!;
    }
    expect(kind.liveBytes).toBe(200 * MIB + 112 * MIB);
  });
});

describe("a pool of 4 GiB", () => {
  test("is what an operator gets who sets nothing", () => {
    expect(umaPoolBytes({})).toBe(4 * 1024 * MIB);
  });

  test("is reserved as it is needed, and not touched", () => {
    const pool = new SlabPool(heapKind(), { poolBytes: umaPoolBytes({}), debug: false, onLeak: () => {} });
    expect(pool.stats().reservedBytes).toBe(0);
    const first = pool.tryAlloc(1)!;
    expect(pool.stats().reservedBytes).toBe(16 * MIB);
    first.release();
    const before = process.memoryUsage.rss();
    const all = drain(pool, MIB);
    expect(all).toHaveLength(4_096);
    for (const { bytes } of all) expect(bytes.length).toBe(MIB);
    expect(process.memoryUsage.rss() - before).toBeLessThan(128 * MIB);
    expect(pool.stats()).toMatchObject({ reservedBytes: 4_096 * MIB, usedBytes: 4_096 * MIB });
    expect(pool.tryAlloc(1)).toBeNull();
    releaseAll(all);
    const large = pool.tryAlloc(3 * 1024 * MIB)!;
    expect(large.bytes).toHaveLength(3 * 1024 * MIB);
    expect(process.memoryUsage.rss() - before).toBeLessThan(128 * MIB);
    large.release();
    return pool.close();
  });
});

describe("a one-off", () => {
  test("counts against the pool exactly as asked", async () => {
    const { pool, kind } = poolOf(10 * MIB);
    const large = pool.tryAlloc(7 * MIB + 1)!;
    expect(pool.stats()).toMatchObject({ usedBytes: 7 * MIB + 1, reservedBytes: 7 * MIB + 1 });
    expect(drain(pool, MIB)).toHaveLength(2);
    const next = pool.alloc(2 * MIB);
    expect(await isPending(next)).toBe(true);
    large.release();
    expect((await next).bytes).toHaveLength(2 * MIB);
    expect(kind.peakBytes).toBeLessThanOrEqual(10 * MIB);
  });

  test("is kept for the next of its size, a few of them, and no more than 64 MiB", () => {
    const { pool, kind } = poolOf(0);
    const [large] = [pool.tryAlloc(2 * MIB)!];
    large.release();
    pool.tryAlloc(2 * MIB)!.release();
    expect(kind.asked).toBe(1);
    pool.tryAlloc(2 * MIB + 1)!.release();
    expect(kind.asked).toBe(2);
    releaseAll([3, 4, 5, 6, 7].map((size) => pool.tryAlloc(size * MIB)!));
    expect([...kind.live].map(({ bytes }) => bytes / MIB)).toEqual([4, 5, 6, 7]);
    pool.tryAlloc(60 * MIB)!.release();
    expect([...kind.live].map(({ bytes }) => bytes / MIB)).toEqual([60]);
    pool.tryAlloc(65 * MIB)!.release();
    expect(kind.liveBytes).toBe(0);
  });

  test("that is idle gives way before anybody has to wait", () => {
    const { pool, kind } = poolOf(10 * MIB);
    pool.tryAlloc(8 * MIB)!.release();
    expect(drain(pool, MIB)).toHaveLength(10);
    expect(kind.peakBytes).toBe(10 * MIB);
  });

  test("gets the room of regions that nothing is out of, and only of those", () => {
    const { pool, kind } = poolOf(32 * MIB);
    const small = drain(pool, MIB);
    expect(kind.live.size).toBe(16);
    const kept = small.pop()!;
    kept.bytes.fill(9);
    releaseAll(small);
    expect(pool.tryAlloc(31 * MIB)).toBeNull();
    expect(kind.live.size).toBe(16);
    const large = pool.tryAlloc(30 * MIB)!;
    expect(large.bytes).toHaveLength(30 * MIB);
    expect(kept.bytes.every((byte) => byte === 9)).toBe(true);
    expect(kind.live.size).toBe(2);
    large.release();
    expect(drain(pool, MIB)).toHaveLength(31);
  });
});

test("small slabs are merged step by step into one that is needed, around what is still out", () => {
  const { pool, kind } = poolOf(16 * MIB);
  const large = drain(pool, MIB);
  large.pop()!.release();
  const small = drain(pool, 256);
  expect(small).toHaveLength(4_096);
  const kept = small.splice(1_000, 1)[0]!;
  kept.bytes.fill(9);
  releaseAll(small);
  expect(pool.tryAlloc(MIB)).toBeNull();
  const merged = drain(pool, 64 * KIB);
  expect(merged).toHaveLength(15);
  for (const { bytes } of merged) bytes.fill(1);
  expect(drain(pool, 16 * KIB)).toHaveLength(3);
  expect(drain(pool, 4 * KIB)).toHaveLength(3);
  expect(drain(pool, KIB)).toHaveLength(3);
  expect(drain(pool, 256)).toHaveLength(3);
  expect(kept.bytes.every((byte) => byte === 9)).toBe(true);
  expect(kind.asked).toBe(16);
});

test("the views of a region that goes back are empty before it does", () => {
  const { pool, kind } = poolOf(4 * MIB);
  const views = drain(pool, 4 * KIB).map((buffer) => {
    const { bytes } = buffer;
    buffer.release();
    return bytes;
  });
  expect(views.every(({ length }) => length === 4 * KIB)).toBe(true);
  let filled = 0;
  kind.onFree = () => (filled += views.filter(({ length }) => length > 0).length);
  pool.tryAlloc(4 * MIB);
  expect(views.every(({ length }) => length === 0)).toBe(true);
  expect(filled).toBeLessThan(views.length * kind.asked);
});
