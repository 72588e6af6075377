import { describe, expect, test } from "bun:test";
import { PoolError } from "../../lib/errors/index.ts";
import { gzip } from "node:zlib";
import { SlabPool, type LeakReport, type SlabBuffer } from "../../lib/memory/index.ts";
import { drain, isPending, KIB, KindDouble, MIB } from "./kind-double.ts";

function poolOf(poolBytes = MIB, debug = false) {
  const kind = new KindDouble();
  const reports: LeakReport[] = [];
  const onLeak = (report: LeakReport): void => void reports.push(report);
  return { kind, reports, pool: new SlabPool(kind, { poolBytes, debug, onLeak }) };
}

/** Lets the collector run until `done`, or for as long as it takes to be sure. */
async function collect(done: () => boolean = () => false): Promise<void> {
  for (let i = 0; i < 30 && !done(); i++) {
    Bun.gc(true);
    await Bun.sleep(2);
  }
}

/** Asks for buffers and forgets them, out of reach of anything that could keep them alive. */
function forget(pool: SlabPool, count: number, size: number): void {
  for (let i = 0; i < count; i++) pool.tryAlloc(size)!.bytes.fill(1);
}

// The last few may still lie on the stack or in a register.
const SURE = 0.9;

describe("a buffer that is collected without a release", () => {
  test("is reported, once, together with others", async () => {
    const { pool, reports } = poolOf(16 * MIB);
    forget(pool, 2_000, 4 * KIB);
    const kept = pool.tryAlloc(4 * KIB)!;
    // Those of the span of time that `kept` belongs to come to light when it goes.
    await collect(() => pool.stats().leakedBuffers >= 1_792);
    const { leakedBuffers, leakedBytes, buffers } = pool.stats();
    expect(leakedBuffers).toBeGreaterThan(1_000);
    expect(leakedBuffers).toBeLessThanOrEqual(1_792);
    expect(leakedBytes).toBe(leakedBuffers * 4 * KIB);
    expect(buffers).toBe(2_001);
    await collect();
    expect(reports.every(({ cause, stack }) => cause === "collected" && stack === null)).toBe(true);
    expect(reports.length).toBeLessThanOrEqual(7);
    const reported = reports.reduce((sum, report) => sum + report.buffers, 0);
    expect(reported).toBe(pool.stats().leakedBuffers);
    expect(kept.bytes).toHaveLength(4 * KIB);
  });

  test("keeps its memory: a view of it may still be read", async () => {
    const { pool } = poolOf(16 * MIB);
    const views = ((): Uint8Array[] =>
      Array.from({ length: 2_000 }, (_, i) => pool.tryAlloc(4 * KIB)!.bytes.fill(i % 251)))();
    await collect(() => pool.stats().leakedBuffers >= 1_792);
    expect(pool.stats().leakedBuffers).toBeGreaterThan(1_000);
    for (let i = 0; i < 2_000; i++) pool.tryAlloc(4 * KIB)!.bytes.fill(0xff);
    expect(views.every((bytes, i) => bytes.every((byte) => byte === i % 251))).toBe(true);
  });

  test("is reported with where it was asked for, in debug mode", async () => {
    const { pool, reports } = poolOf(16 * MIB, true);
    forget(pool, 20, 1_000);
    await collect(() => reports.length >= 20 * SURE);
    expect(reports.length).toBeGreaterThanOrEqual(20 * SURE);
    for (const { cause, buffers, bytes, stack } of reports) {
      expect({ cause, buffers, bytes }).toEqual({ cause: "collected", buffers: 1, bytes: KIB });
      expect(stack).toContain("forget");
      expect(stack).toContain("slab-lost.test.ts");
    }
  });

  test("is not waited for: neither by close nor by those who wait for memory", async () => {
    const { pool, kind } = poolOf(4 * MIB);
    forget(pool, 4, MIB);
    const waiting = pool.alloc(4 * MIB);
    const closed = waiting.catch((error) => error);
    await collect(() => pool.stats().waiting === 0);
    const error = await closed;
    expect(error).toBeInstanceOf(PoolError);
    expect(error.message).toContain("4194304 of them in buffers that were never released");
    expect(await pool.close({ outstanding: "wait" })).toEqual({ buffers: 4, bytes: 4 * MIB });
    expect(kind.live.size).toBe(4);
    expect(kind.closed).toBe(0);
  });

  test("lets a close that waits already go on", async () => {
    const { pool } = poolOf(4 * MIB);
    forget(pool, 3, MIB);
    const closed = pool.close({ outstanding: "wait" });
    await collect(() => pool.stats().leakedBuffers === 3);
    expect(await closed).toEqual({ buffers: 3, bytes: 3 * MIB });
  });

  test("is reported also when its pool is gone with it", async () => {
    const reports: LeakReport[] = [];
    ((): void => {
      for (let i = 0; i < 20; i++) {
        const pool = new SlabPool(new KindDouble(), {
          poolBytes: 4 * KIB,
          debug: true,
          onLeak: (report) => void reports.push(report),
        });
        forget(pool, 1, 100);
      }
    })();
    await collect(() => reports.length >= 20 * SURE);
    expect(reports.length).toBeGreaterThanOrEqual(20 * SURE);
  });

  test("is a warning of the process when nobody asked", async () => {
    const warnings: (Error & { code?: string })[] = [];
    const note = (warning: Error): void => void warnings.push(warning);
    process.on("warning", note);
    try {
      const pool = new SlabPool(new KindDouble(), { poolBytes: MIB, debug: false });
      forget(pool, 100, KIB);
      void pool.close();
      await collect(() => warnings.length > 0);
    } finally {
      process.off("warning", note);
    }
    expect(warnings).toHaveLength(1);
    expect(warnings[0]!.name).toBe("ZapPoolWarning");
    expect(warnings[0]!.code).toBe("ZAP_POOL_COLLECTED");
    expect(warnings[0]!.message).toMatch(/^\d+ buffers were never released; \d+ bytes of the pool are lost$/);
  });

  test("is not reported when it was released", async () => {
    const { pool, reports } = poolOf(16 * MIB);
    for (let i = 0; i < 1_000; i++) pool.tryAlloc(100)!.release();
    await pool.close();
    await collect();
    expect(reports).toEqual([]);
    expect(pool.stats().leakedBuffers).toBe(0);
  });
});

describe.each([false, true])("memory whose ArrayBuffer a user transferred, with debug %p", (debug) => {
  const transferOf = (buffer: SlabBuffer): Uint8Array =>
    new Uint8Array((buffer.bytes.buffer as ArrayBuffer).transfer());

  test("is never handed out again; the rest of the pool is", async () => {
    const { pool, reports } = poolOf(16 * KIB, debug);
    const buffer = pool.tryAlloc(KIB)!;
    buffer.bytes.fill(7);
    const taken = transferOf(buffer);
    buffer.release();
    expect(pool.stats()).toMatchObject({ lostBytes: KIB, buffers: 0, usedBytes: 0 });
    const rest = drain(pool, KIB);
    expect(rest).toHaveLength(15);
    for (const { bytes } of rest) bytes.fill(9);
    expect(taken.every((byte) => byte === 7)).toBe(true);
    await Bun.sleep(1);
    expect(reports).toEqual([{ cause: "detached", buffers: 0, bytes: KIB, stack: null, error: null }]);
    for (const each of rest) each.release();
  });

  test("is not freed under whoever has it now, nor is its kind closed", async () => {
    const { pool, kind } = poolOf(64 * KIB, debug);
    const buffer = pool.tryAlloc(KIB)!;
    const taken = transferOf(buffer).fill(7);
    buffer.release();
    await pool.close({ outstanding: "wait" });
    expect(kind.live.size).toBe(1);
    expect(kind.closed).toBe(0);
    expect(taken.every((byte) => byte === 7)).toBe(true);
  });

  test("costs a one-off its room", () => {
    const { pool } = poolOf(4 * MIB, debug);
    const large = pool.tryAlloc(3 * MIB)!;
    transferOf(large);
    large.release();
    expect(pool.stats().lostBytes).toBe(3 * MIB);
    expect(() => pool.tryAlloc(3 * MIB)).toThrow(
      "alloc: 3145728 bytes do not fit any more: 3145728 of the pool's 4194304 bytes are lost",
    );
    expect(pool.tryAlloc(MIB)).not.toBeNull();
  });

  test("makes those behind wait only as long as something can come back", async () => {
    const { pool } = poolOf(MIB, debug);
    const buffer = pool.tryAlloc(MIB)!;
    const waiting = pool.alloc(MIB);
    expect(await isPending(waiting)).toBe(true);
    transferOf(buffer);
    buffer.release();
    await expect(waiting).rejects.toThrow(PoolError);
  });
});

describe("a view that was kept and transferred after the release", () => {
  const poolWithKeptView = (poolBytes: number, size: number) => {
    const all = poolOf(poolBytes);
    const buffer = all.pool.tryAlloc(size)!;
    const kept = buffer.bytes.buffer as ArrayBuffer;
    buffer.release();
    return { ...all, kept };
  };

  test("costs the slab that is free", () => {
    const { pool, kept } = poolWithKeptView(16 * KIB, KIB);
    const taken = new Uint8Array(kept.transfer()).fill(7);
    const bytes = drain(pool, KIB).map((buffer) => buffer.bytes.fill(9));
    expect(bytes).toHaveLength(15);
    expect(taken.every((byte) => byte === 7)).toBe(true);
    expect(pool.stats().lostBytes).toBe(KIB);
  });

  test("costs it also when it would be split or merged", () => {
    const split = poolWithKeptView(16 * KIB, 4 * KIB);
    split.kept.transfer();
    split.pool.tryAlloc(KIB);
    expect(split.pool.stats().lostBytes).toBe(4 * KIB);
    const merge = poolWithKeptView(4 * KIB, 256);
    merge.kept.transfer();
    expect(() => merge.pool.tryAlloc(4 * KIB)).toThrow(PoolError);
    expect(merge.pool.stats().lostBytes).toBe(256);
  });

  test("keeps its region when that would go back", async () => {
    const { pool, kind, kept } = poolWithKeptView(MIB, KIB);
    const taken = new Uint8Array(kept.transfer());
    await pool.close();
    expect(kind.live.size).toBe(1);
    expect(kind.closed).toBe(0);
    expect(pool.stats().lostBytes).toBe(64 * KIB);
    expect(taken).toHaveLength(KIB);
  });

  test("costs a one-off that is kept for its size", () => {
    const { pool, kept } = poolWithKeptView(8 * MIB, 2 * MIB);
    kept.transfer();
    expect(pool.tryAlloc(2 * MIB)!.bytes).toHaveLength(2 * MIB);
    expect(pool.stats().lostBytes).toBe(2 * MIB);
  });

  test("is noticed by the next owner, who has not looked yet", () => {
    const { pool, kept } = poolWithKeptView(KIB, KIB);
    const next = pool.tryAlloc(KIB)!;
    kept.transfer();
    expect(() => next.bytes).toThrow("the memory was transferred away");
    next.release();
    expect(pool.stats().lostBytes).toBe(KIB);
  });
});

describe("a buffer that is released while a system call still reads it", () => {
  for (const debug of [false, true]) {
    test(`keeps its memory from the runtime${debug ? ", and from the next owner in debug mode" : ""}`, async () => {
      const { pool, reports, kind } = poolOf(64 * MIB, debug);
      const buffer = pool.tryAlloc(8 * MIB)!;
      // A running compression pins its input: it cannot be emptied.
      const { promise, resolve } = Promise.withResolvers<void>();
      gzip(buffer.bytes, () => resolve());
      const { address } = buffer;
      buffer.release();
      const next = debug ? pool.tryAlloc(8 * MIB) : null;
      expect(next?.address).not.toBe(address);
      next?.release();
      await pool.close();
      // Never given back: somebody might still read it.
      expect([...kind.live].map((region) => region.address)).toEqual([address]);
      expect(pool.stats().lostBytes).toBe(8 * MIB);
      await promise;
      await Bun.sleep(1);
      expect(reports.map(({ cause, bytes }) => [cause, bytes])).toEqual([["detached", 8 * MIB]]);
    });
  }
});
