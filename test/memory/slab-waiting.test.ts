import { describe, expect, test } from "bun:test";
import { AbortedError } from "../../lib/errors/index.ts";
import { SlabPool, type SlabBuffer } from "../../lib/memory/index.ts";
import { isPending, KIB, KindDouble, MIB } from "./kind-double.ts";

function fullPool(poolBytes = MIB, size = poolBytes): { pool: SlabPool; held: SlabBuffer[] } {
  const pool = new SlabPool(new KindDouble(), { poolBytes, debug: false, onLeak: () => {} });
  const held: SlabBuffer[] = [];
  for (let one = pool.tryAlloc(size); one !== null; one = pool.tryAlloc(size)) held.push(one);
  return { pool, held };
}

describe("those who wait", () => {
  test("are served strictly in order of asking, whatever would fit sooner", async () => {
    const { pool, held } = fullPool(MIB, 64 * KIB);
    const served: string[] = [];
    const ask = async (name: string, size: number): Promise<SlabBuffer> => {
      const buffer = await pool.alloc(size);
      served.push(name);
      return buffer;
    };
    const large = ask("large", MIB);
    const small = [ask("small 1", 1), ask("small 2", 64 * KIB)];
    for (const buffer of held.slice(1)) buffer.release();
    expect(await isPending(Promise.race([large, ...small]))).toBe(true);
    expect(pool.stats().waiting).toBe(3);
    held[0]!.release();
    (await large).release();
    await Promise.all(small);
    expect(served).toEqual(["large", "small 1", "small 2"]);
  });

  test("are never overtaken by tryAlloc, nor by an alloc that would fit", async () => {
    const { pool, held } = fullPool(MIB, 64 * KIB);
    const large = pool.alloc(MIB);
    held[0]!.release();
    expect(pool.tryAlloc(1)).toBeNull();
    const small = pool.alloc(1);
    expect(await isPending(small)).toBe(true);
    for (const buffer of held) buffer.release();
    (await large).release();
    expect((await small).bytes).toHaveLength(1);
    expect(pool.tryAlloc(1)).not.toBeNull();
  });

  test("may give up, and lose nothing by it: the next in line has the turn", async () => {
    const { pool, held } = fullPool(MIB, 64 * KIB);
    const impatient = new AbortController();
    const large = pool.alloc(MIB, { signal: impatient.signal });
    const small = pool.alloc(64 * KIB);
    held[0]!.release();
    expect(await isPending(small)).toBe(true);
    impatient.abort(new Error("enough"));
    const error = await large.catch((reason) => reason);
    expect(error).toBeInstanceOf(AbortedError);
    expect(error.name).toBe("AbortError");
    expect(error.cause.message).toBe("enough");
    expect((await small).bytes).toHaveLength(64 * KIB);
    expect(pool.stats()).toMatchObject({ waiting: 0, buffers: 16, usedBytes: MIB });
  });

  test("may give up in any place of the line", async () => {
    const { pool, held } = fullPool();
    const controllers = Array.from({ length: 6 }, () => new AbortController());
    const served: number[] = [];
    const all = controllers.map(({ signal }, i) =>
      pool.alloc(MIB, { signal }).then(
        (buffer) => (served.push(i), buffer.release()),
        () => {},
      ),
    );
    for (const i of [2, 0, 5]) controllers[i]!.abort();
    expect(pool.stats().waiting).toBe(3);
    held[0]!.release();
    await Promise.all(all);
    expect(served).toEqual([1, 3, 4]);
    expect(pool.stats()).toMatchObject({ waiting: 0, buffers: 0 });
  });

  test("keep the buffer when the signal comes after it was given", async () => {
    const { pool, held } = fullPool();
    const controller = new AbortController();
    const waiting = pool.alloc(MIB, { signal: controller.signal });
    held[0]!.release();
    controller.abort();
    const buffer = await waiting;
    expect(buffer.bytes).toHaveLength(MIB);
    buffer.release();
    expect(pool.stats().buffers).toBe(0);
  });

  test("leave no listener on the signal", async () => {
    const { pool, held } = fullPool();
    const { signal } = new AbortController();
    const counts = { added: 0, removed: 0 };
    const { addEventListener, removeEventListener } = signal;
    signal.addEventListener = (...args: unknown[]) => {
      counts.added++;
      Reflect.apply(addEventListener, signal, args);
    };
    signal.removeEventListener = (...args: unknown[]) => {
      counts.removed++;
      Reflect.apply(removeEventListener, signal, args);
    };
    const waiting = pool.alloc(MIB, { signal });
    held[0]!.release();
    await waiting;
    expect(counts).toEqual({ added: 1, removed: 1 });
  });
});

test("a signal that has fired already is heard before anything is taken", async () => {
  const pool = new SlabPool(new KindDouble(), { poolBytes: MIB });
  await expect(pool.alloc(1, { signal: AbortSignal.abort() })).rejects.toThrow("alloc was aborted");
  expect(pool.stats()).toMatchObject({ buffers: 0, reservedBytes: 0 });
});

test("ten thousand wait for one buffer, and all are served", async () => {
  const { pool, held } = fullPool();
  const served: number[] = [];
  const all = Array.from({ length: 10_000 }, async (_, i) => {
    const buffer = await pool.alloc(1 + (i % MIB));
    served.push(i);
    buffer.release();
  });
  held[0]!.release();
  await Promise.all(all);
  expect(served).toEqual(Array.from({ length: 10_000 }, (_, i) => i));
});
