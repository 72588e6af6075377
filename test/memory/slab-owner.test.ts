import { describe, expect, test } from "bun:test";
import { NotAvailableError, OwnerError } from "../../lib/errors/index.ts";
import { heapKind, SlabPool, type LeakReport } from "../../lib/memory/index.ts";
import { gate, isPending, KindDouble, MIB } from "./kind-double.ts";

function poolOf(debug: boolean, poolBytes = MIB) {
  const kind = new KindDouble();
  const reports: LeakReport[] = [];
  const onLeak = (report: LeakReport): void => void reports.push(report);
  return { kind, reports, pool: new SlabPool(kind, { poolBytes, debug, onLeak }) };
}

describe.each([false, true])("handing over, with debug %p", (debug) => {
  test("is a fence at each border with the GPU, and only there", () => {
    const { pool, kind } = poolOf(debug);
    const buffer = pool.tryAlloc(100)!;
    const owners = ["gpu", "cpu", "nic", "gpu", "nic", "cpu"] as const;
    const seen = owners.map((to) => {
      const before = kind.fences.length;
      expect(buffer.handOver(to)).toBeUndefined();
      expect(buffer.owner).toBe(to);
      return kind.fences[before] ?? "no fence";
    });
    expect(seen).toEqual(["to device", "to host", "no fence", "to device", "to host", "no fence"]);
    void buffer.handOver("cpu");
    expect(kind.fences).toHaveLength(4);
    buffer.release();
  });

  test("takes as long as the kind's fence does", async () => {
    const { pool, kind } = poolOf(debug);
    const buffer = pool.tryAlloc(100)!;
    const kernel = gate();
    kind.fence = () => kernel.promise;
    const done = buffer.handOver("gpu") as Promise<void>;
    expect(await isPending(done)).toBe(true);
    expect(() => buffer.handOver("cpu")).toThrow(OwnerError);
    kernel.open();
    await done;
    expect(buffer.owner).toBe("gpu");
    await buffer.handOver("cpu");
    expect(buffer.owner).toBe("cpu");
    buffer.release();
  });

  test("that fails leaves the owner as it was", async () => {
    const { pool, kind } = poolOf(debug);
    const buffer = pool.tryAlloc(100)!;
    kind.fence = () => {
      throw new Error("the device is lost");
    };
    expect(() => buffer.handOver("gpu")).toThrow("the device is lost");
    expect(buffer.owner).toBe("cpu");
    kind.fence = () => Promise.reject(new Error("the device is lost"));
    await expect(buffer.handOver("gpu")).rejects.toThrow("the device is lost");
    expect(buffer.owner).toBe("cpu");
    expect(buffer.bytes).toHaveLength(100);
  });

  test("to one who cannot reach the memory is refused", () => {
    const buffer = new SlabPool(heapKind(), { poolBytes: 0, debug }).tryAlloc(1)!;
    expect(() => buffer.handOver("gpu")).toThrow(NotAvailableError);
    expect(() => buffer.handOver("gpu")).toThrow("the gpu cannot reach heap memory");
    expect(buffer.owner).toBe("cpu");
    buffer.release();
  });

  test("memory that the CPU cannot reach has addresses and no bytes", () => {
    const { pool, kind } = poolOf(debug);
    kind.reach = { cpu: false, gpu: true, nic: true };
    const buffer = pool.tryAlloc(1)!;
    expect(buffer.address).toBe(0);
    expect(buffer.devicePtr).not.toBeNull();
    expect(() => buffer.bytes).toThrow("the cpu cannot reach cuda memory");
    buffer.release();
  });
});

describe("what the GPU owns when it is released", () => {
  test("goes back after a fence", () => {
    const { pool, kind } = poolOf(false);
    const buffer = pool.tryAlloc(MIB)!;
    void buffer.handOver("gpu");
    buffer.release();
    expect(kind.fences).toEqual(["to device", "to host"]);
    expect(pool.stats().buffers).toBe(0);
    pool.tryAlloc(MIB)!.release();
    expect(kind.fences).toHaveLength(2);
  });

  test("goes to nobody before the fence has come back", async () => {
    const { pool, kind } = poolOf(false);
    const buffer = pool.tryAlloc(MIB)!;
    void buffer.handOver("gpu");
    const kernel = gate();
    kind.fence = () => kernel.promise;
    buffer.release();
    buffer.release();
    const next = pool.alloc(MIB);
    expect(await isPending(next)).toBe(true);
    kernel.open();
    expect((await next).bytes).toHaveLength(MIB);
    expect(kind.fences).toEqual(["to device", "to host"]);
  });

  test("may be on its way to or from it", async () => {
    const { pool, kind } = poolOf(false);
    for (const to of ["gpu", "cpu"] as const) {
      const buffer = pool.tryAlloc(MIB)!;
      if (to === "cpu") void buffer.handOver("gpu");
      const fence = gate();
      kind.fence = () => fence.promise;
      void buffer.handOver(to);
      buffer.release();
      const next = pool.alloc(MIB);
      expect(await isPending(next)).toBe(true);
      fence.open();
      kind.fence = null;
      (await next).release();
    }
    expect(kind.fences).toEqual(["to device", "to host", "to device", "to host"]);
  });

  test.each([
    [
      "at once",
      (error: Error) => () => {
        throw error;
      },
    ],
    ["later", (error: Error) => () => Promise.reject(error)],
  ])("is lost when the fence fails %s, and said so", async (_when, failing) => {
    const { pool, kind, reports } = poolOf(false);
    const buffer = pool.tryAlloc(MIB)!;
    void buffer.handOver("gpu");
    const error = new Error("the device is lost");
    kind.fence = failing(error);
    buffer.release();
    const next = pool.alloc(MIB);
    await expect(next).rejects.toThrow("1048576 of the pool's 1048576 bytes are lost");
    await Bun.sleep(1);
    expect(reports).toEqual([{ cause: "device", buffers: 0, bytes: MIB, stack: null, error }]);
    expect(pool.stats()).toMatchObject({ buffers: 0, usedBytes: 0, lostBytes: MIB });
    expect(await pool.close({ outstanding: "wait" })).toEqual({ buffers: 0, bytes: 0 });
    expect(kind.live.size).toBe(1);
    expect(kind.closed).toBe(0);
  });
});
