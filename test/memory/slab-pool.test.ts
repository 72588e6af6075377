import { describe, expect, test } from "bun:test";
import { ClosedError, ConfigError, PoolError } from "../../lib/errors/index.ts";
import { heapKind, SlabPool, type SlabBuffer } from "../../lib/memory/index.ts";
import { DEVICE_OFFSET, KIB, KindDouble, MIB } from "./kind-double.ts";

const CLASSES = [256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB];

function poolOf(poolBytes = 64 * MIB): { pool: SlabPool; kind: KindDouble } {
  const kind = new KindDouble();
  return { kind, pool: new SlabPool(kind, { poolBytes, debug: false, onLeak: () => {} }) };
}

describe("a buffer", () => {
  test.each([1, 255, 256, 257, 1_000, 4_095, 4_096, 4_097, 65_536, 65_537, MIB, MIB + 1, 3 * MIB])(
    "of %d bytes is exactly as long as asked, and holds what is written",
    async (size) => {
      const { pool } = poolOf();
      const buffer = await pool.alloc(size);
      expect(buffer.size).toBe(size);
      expect(buffer.bytes).toHaveLength(size);
      expect(buffer.bytes).toBe(buffer.bytes);
      expect(buffer.bytes.byteOffset).toBe(0);
      buffer.bytes.fill(7);
      expect(buffer.bytes[size - 1]).toBe(7);
      buffer.release();
      await pool.close();
    },
  );

  test("takes the smallest slab that holds it; above 1 MiB exactly what was asked", () => {
    const { pool } = poolOf();
    const usedFor = (size: number): number => {
      const before = pool.stats().usedBytes;
      pool.tryAlloc(size)!;
      return pool.stats().usedBytes - before;
    };
    for (const [order, bytes] of CLASSES.entries()) {
      expect(usedFor(bytes)).toBe(bytes);
      expect(usedFor(bytes - 1)).toBe(bytes);
      if (order > 0) expect(usedFor(CLASSES[order - 1]! + 1)).toBe(bytes);
    }
    expect(usedFor(MIB + 1)).toBe(MIB + 1);
    expect(usedFor(5_000_001)).toBe(5_000_001);
  });

  test("says where it lies: for the CPU, for the device, and for kernels", () => {
    const { pool, kind } = poolOf();
    pool.tryAlloc(4 * KIB);
    const buffer = pool.tryAlloc(4 * KIB)!;
    const [region] = kind.live;
    expect(buffer.regionHandle).toBe(region!.handle);
    expect(buffer.regionOffset).toBe(4 * KIB);
    expect(buffer.address).toBe(region!.address + 4 * KIB);
    expect(buffer.devicePtr).toBe(BigInt(buffer.address) + DEVICE_OFFSET);
  });

  test("has no device address on the heap, and lies on a page at the start of a region", () => {
    const pool = new SlabPool(heapKind(), { poolBytes: MIB, onLeak: () => {} });
    const buffer = pool.tryAlloc(MIB)!;
    expect(buffer.devicePtr).toBeNull();
    expect(buffer.regionHandle).toBe(0);
    expect(buffer.address % 65_536).toBe(0);
  });

  test("lies at a multiple of its slab's size from the region's start, apart from every other", () => {
    const { pool } = poolOf(0);
    const buffers: SlabBuffer[] = [];
    for (let i = 0; i < 200; i++) buffers.push(pool.tryAlloc(CLASSES[i % 5]!)!);
    const ranges = buffers.map(({ regionHandle, regionOffset, size }) => ({
      start: regionHandle * 2 ** 32 + regionOffset,
      size,
    }));
    for (const { start, size } of ranges) expect((start % 2 ** 32) % size).toBe(0);
    ranges.sort((a, b) => a.start - b.start);
    for (let i = 1; i < ranges.length; i++)
      expect(ranges[i]!.start).toBeGreaterThanOrEqual(ranges[i - 1]!.start + ranges[i - 1]!.size);
  });

  test("is of no use after its release", () => {
    const { pool } = poolOf();
    const buffer = pool.tryAlloc(100)!;
    buffer.release();
    expect(() => buffer.bytes).toThrow(ClosedError);
    expect(() => buffer.bytes).toThrow("buffer.bytes: the buffer was released");
    expect(() => buffer.devicePtr).toThrow(ClosedError);
    expect(() => buffer.address).toThrow(ClosedError);
    expect(() => buffer.regionHandle).toThrow(ClosedError);
    expect(() => buffer.regionOffset).toThrow(ClosedError);
    expect(() => buffer.handOver("gpu")).toThrow(ClosedError);
  });

  test("is released once: a second release takes nothing from whoever has the memory now", () => {
    const { pool } = poolOf();
    const first = pool.tryAlloc(4 * KIB)!;
    first.bytes.fill(1);
    first.release();
    const second = pool.tryAlloc(4 * KIB)!;
    expect(second.regionOffset).toBe(0);
    second.bytes.fill(2);
    first.release();
    const third = pool.tryAlloc(4 * KIB)!;
    third.bytes.fill(3);
    expect(second.bytes.every((byte) => byte === 2)).toBe(true);
    expect(pool.stats()).toMatchObject({ buffers: 2, usedBytes: 8 * KIB });
  });

  test("knows its own pool: releasing gives the memory to no other", () => {
    const [one, other] = [poolOf(4 * KIB), poolOf(4 * KIB)];
    const mine = one.pool.tryAlloc(4 * KIB)!;
    const theirs = other.pool.tryAlloc(4 * KIB)!;
    mine.release();
    expect(one.pool.stats().buffers).toBe(0);
    expect(other.pool.stats().buffers).toBe(1);
    expect(other.pool.tryAlloc(1)).toBeNull();
    theirs.release();
    expect(other.pool.stats().usedBytes).toBe(0);
  });
});

describe("a pool hit", () => {
  test("asks neither the kind for memory nor for a new view", () => {
    const { pool, kind } = poolOf();
    const first = pool.tryAlloc(4 * KIB)!;
    const { bytes } = first;
    first.release();
    for (let i = 0; i < 1_000; i++) {
      const buffer = pool.tryAlloc(4 * KIB)!;
      if (buffer.bytes !== bytes) throw new Error("a new view was made");
      buffer.release();
    }
    expect(kind.asked).toBe(1);
  });

  test("serves 16 MiB of buffers from one region", () => {
    const { pool, kind } = poolOf(4 * 1024 * MIB);
    for (let i = 0; i < 4_096; i++) pool.tryAlloc(4 * KIB);
    expect(kind.asked).toBe(1);
    expect(kind.liveBytes).toBe(16 * MIB);
    pool.tryAlloc(1);
    expect(kind.asked).toBe(2);
  });

  test("reuses small slabs as a large one, and a large one as small ones", () => {
    const { pool, kind } = poolOf(16 * MIB);
    for (let round = 0; round < 3; round++) {
      for (const size of CLASSES) {
        const all: SlabBuffer[] = [];
        for (let left = 16 * MIB; left > 0; left -= size) all.push(pool.tryAlloc(size)!);
        expect(pool.tryAlloc(1)).toBeNull();
        for (const buffer of all) buffer.release();
      }
    }
    expect(kind.peakBytes).toBe(16 * MIB);
    expect(kind.asked).toBe(16);
  });
});

describe("a size", () => {
  test.each([0, -1, 1.5, NaN, Infinity, 2 ** 53, "12" as never, undefined as never, 10n as never])(
    "of %p is refused by name",
    async (size) => {
      const { pool } = poolOf();
      for (const error of [
        await pool.alloc(size).catch((reason) => reason),
        await Promise.try(() => pool.tryAlloc(size)).catch((reason) => reason),
      ]) {
        expect(error).toBeInstanceOf(ConfigError);
        expect(error.message).toBe(
          `alloc: the size must be a whole number of bytes above 0, and it is ${size}`,
        );
      }
      expect(pool.stats()).toMatchObject({ buffers: 0, waiting: 0 });
    },
  );

  test("that can never fit is refused at once, also while others wait", async () => {
    const { pool } = poolOf(MIB);
    pool.tryAlloc(MIB);
    void pool.alloc(1).catch(() => {});
    const error = await pool.alloc(MIB + 1).catch((reason) => reason);
    expect(error).toBeInstanceOf(PoolError);
    expect(error.code).toBe("ERR_ZAP_POOL");
    expect(error.message).toContain("1048577 bytes never fit into a pool of 1048576");
    expect(() => pool.tryAlloc(MIB + 1)).toThrow(PoolError);
    await pool.close();
  });

  test("above what one buffer can have is refused in a pool without a bound", () => {
    const { pool, kind } = poolOf(0);
    expect(() => pool.tryAlloc(4 * 1024 * MIB)).toThrow("more than one buffer can have");
    expect(kind.asked).toBe(0);
  });
});

test.each([-1, 1.5, NaN, Infinity, 2 ** 53, "1" as never])("poolBytes of %p is refused", (poolBytes) => {
  expect(() => new SlabPool(heapKind(), { poolBytes })).toThrow(ConfigError);
});

test("stats tell what is reserved, out, waiting, and the most there was", async () => {
  const { pool } = poolOf(2 * MIB);
  expect(pool.stats()).toEqual({
    poolBytes: 2 * MIB,
    reservedBytes: 0,
    usedBytes: 0,
    peakBytes: 0,
    buffers: 0,
    waiting: 0,
    leakedBuffers: 0,
    leakedBytes: 0,
    lostBytes: 0,
  });
  const buffers = [pool.tryAlloc(MIB)!, pool.tryAlloc(300)!];
  const waiting = pool.alloc(MIB);
  expect(pool.stats()).toMatchObject({ usedBytes: MIB + KIB, buffers: 2, waiting: 1 });
  for (const buffer of buffers) buffer.release();
  (await waiting).release();
  expect(pool.stats()).toMatchObject({ usedBytes: 0, peakBytes: MIB + KIB, buffers: 0, waiting: 0 });
});
