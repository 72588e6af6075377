import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { gzip } from "node:zlib";
import { HeapArena } from "../../lib/memory/index.ts";
import { runs } from "../support/properties.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const SLOT = 16 * KIB;

/** Takes until the arena has no slot of that size left: everything that it would ever hand out. Gives nothing back. */
function exhaust(arena: HeapArena, bytes = SLOT): Uint8Array[] {
  const all: Uint8Array[] = [];
  for (let i = 0; i <= arena.bytes / SLOT; i++) all.push(arena.take(bytes));
  return all;
}

/** How many of these are slots of the arena; gives them back to find out. */
function slotsAmong(arena: HeapArena, all: readonly Uint8Array[]): number {
  return all.filter((memory) => (arena.give(memory), memory.length === 0)).length;
}

/** Whether `write` shows in any of them: whether they share memory with what `write` writes to. */
function reached(all: readonly Uint8Array[], write: (byte: number) => void): boolean {
  for (const memory of all) memory.fill(0);
  write(0xa5);
  return all.some((memory) => memory.includes(0xa5));
}

async function collect(): Promise<void> {
  for (let i = 0; i < 5; i++) {
    Bun.gc(true);
    await Bun.sleep(1);
  }
}

describe("an arena", () => {
  test("hands a slot out again once it was given back, to one owner at a time", () => {
    const arena = new HeapArena(4 * SLOT);
    const first = arena.take(SLOT);
    first.fill(7);
    arena.give(first);
    const second = arena.take(SLOT);
    expect(second[SLOT - 1]).toBe(7);
    const others = exhaust(arena);
    expect(reached(others, (byte) => second.fill(byte))).toBe(false);
    expect(slotsAmong(arena, others)).toBe(3);
  });

  test("empties every view of what is given back, so that nobody sees the next owner's bytes", () => {
    const arena = new HeapArena(SLOT);
    const memory = arena.take(SLOT);
    const views = [memory.subarray(10, 20), new DataView(memory.buffer), Buffer.from(memory.buffer, 0, 8)];
    arena.give(memory);
    const next = arena.take(SLOT).fill(9);
    expect(memory.length).toBe(0);
    expect(memory[0]).toBeUndefined();
    expect(views[0]).toHaveLength(0);
    expect(() => (views[1] as DataView).getUint8(0)).toThrow();
    expect(views[2]).toHaveLength(0);
    expect(next.every((byte) => byte === 9)).toBe(true);
  });

  test("takes a slot back by any view of it", () => {
    const arena = new HeapArena(SLOT);
    arena.give(arena.take(SLOT).subarray(100, 200));
    expect(slotsAmong(arena, exhaust(arena))).toBe(1);
  });

  test("is not misled by memory that is given twice", () => {
    const arena = new HeapArena(2 * SLOT);
    const memory = arena.take(SLOT);
    const view = memory.subarray(0, 10);
    for (const each of [memory, memory, view, view]) arena.give(each);
    // Given twice, it would be handed out twice.
    const [a, b] = [arena.take(SLOT), arena.take(SLOT)];
    expect(reached([b], (byte) => a.fill(byte))).toBe(false);
    // An old view of it does not take it away from its new owner.
    arena.give(memory);
    expect([a.length, b.length]).toEqual([SLOT, SLOT]);
    expect(slotsAmong(arena, [a, b, ...exhaust(arena)])).toBe(2);
  });

  test("leaves memory alone that it did not hand out", () => {
    const arena = new HeapArena(2 * SLOT);
    const other = new HeapArena(2 * SLOT);
    const foreign = [
      new Uint8Array(SLOT),
      new Uint8Array(0),
      Buffer.alloc(SLOT),
      new Uint8Array(new SharedArrayBuffer(SLOT)),
      other.take(SLOT),
      arena.take(SLOT - 1),
      arena.take(SLOT).slice(),
    ];
    const lengths = foreign.map((memory) => memory.length);
    for (const memory of foreign) arena.give(memory);
    expect(foreign.map((memory) => memory.length)).toEqual(lengths);
    // One slot is still out.
    expect(slotsAmong(arena, exhaust(arena))).toBe(1);
    expect(slotsAmong(other, exhaust(other))).toBe(1);
  });

  test("hands out plain memory when no slot is left, and slots again when one is", () => {
    const arena = new HeapArena(2 * SLOT);
    const all = exhaust(arena);
    for (const [i, memory] of all.entries()) {
      expect(memory.length).toBe(SLOT);
      memory.fill(i + 1);
    }
    for (const [i, memory] of all.entries()) expect(memory.every((byte) => byte === i + 1)).toBe(true);
    expect(slotsAmong(arena, all)).toBe(2);
    expect(slotsAmong(arena, exhaust(arena))).toBe(2);
  });

  test("never hands out a slot that its holder transferred, and does not throw when it is given back", async () => {
    const arena = new HeapArena(2 * SLOT);
    const lease = arena.take(SLOT);
    const moved = new Uint8Array((lease.buffer as ArrayBuffer).transfer());
    expect(moved.length).toBe(SLOT);
    arena.give(lease);
    arena.give(moved);
    await collect();
    const others = exhaust(arena);
    expect(reached(others, (byte) => moved.fill(byte))).toBe(false);
    expect(slotsAmong(arena, others)).toBe(1);
  });

  test("never hands out a slot that was transferred to another thread", async () => {
    const arena = new HeapArena(2 * SLOT);
    const lease = arena.take(SLOT);
    const moved = structuredClone(lease.buffer, { transfer: [lease.buffer as ArrayBuffer] });
    arena.give(lease);
    await collect();
    const others = exhaust(arena);
    expect(reached(others, (byte) => new Uint8Array(moved).fill(byte))).toBe(false);
    expect(slotsAmong(arena, others)).toBe(1);
  });

  test("never hands out a slot that a system call still reads", async () => {
    const arena = new HeapArena(2 * SLOT);
    const lease = arena.take(SLOT).fill(1);
    // A running compression pins its input: it cannot be emptied.
    const { promise, resolve } = Promise.withResolvers<void>();
    gzip(lease, () => resolve());
    arena.give(lease);
    const others = exhaust(arena);
    for (const other of others) other.fill(2);
    expect(lease.every((byte) => byte === 1)).toBe(true);
    await promise;
    expect(slotsAmong(arena, others)).toBe(1);
  });

  test("never hands out a slot whose holder forgot it: another view may be left", async () => {
    const arena = new HeapArena(8 * SLOT);
    const left: Uint8Array[] = [];
    const forget = (): void => {
      for (let i = 0; i < 6; i++) {
        // The lease itself is collected; for every other one, what it was transferred to is not.
        const lease = arena.take(SLOT);
        if (i % 2 === 0) left.push(new Uint8Array((lease.buffer as ArrayBuffer).transfer()));
      }
    };
    forget();
    await collect();
    const others = exhaust(arena);
    expect(reached(others, (byte) => left.forEach((memory) => memory.fill(byte)))).toBe(false);
    expect(slotsAmong(arena, others)).toBe(2);
  });

  test("gives exactly what was asked for at the borders of every class", () => {
    const arena = new HeapArena(64 * MIB);
    const given: Uint8Array[] = [];
    for (let size = 8 * KIB; size <= 8 * MIB; size *= 2) {
      for (const bytes of [size - 1, size, size + 1]) {
        const memory = arena.take(bytes);
        expect([memory.length, memory.byteOffset, memory.buffer.byteLength]).toEqual([bytes, 0, bytes]);
        // Ends and middle alone: all of it would be slow, and a neighbour's slot begins at an end.
        for (const at of [0, bytes >> 1, bytes - 1]) memory[at] = given.length;
        given.push(memory);
      }
    }
    for (const [i, memory] of given.entries()) {
      for (const at of [0, memory.length >> 1, memory.length - 1]) expect(memory[at]).toBe(i);
    }
    // Below the smallest and above the largest slot it is plain memory.
    const slots = given.filter((memory) => (arena.give(memory), memory.length === 0)).length;
    const sizes = given.map((memory) => memory.length).filter((length) => length > 0);
    expect(sizes).toEqual(
      [8 * KIB - 1, 8 * KIB, 8 * KIB + 1, 16 * KIB - 1].concat([
        4 * MIB + 1,
        8 * MIB - 1,
        8 * MIB,
        8 * MIB + 1,
      ]),
    );
    expect(slots).toBe(given.length - sizes.length);
  });

  test("hands out none but plain memory where it is smaller than a slot", () => {
    const arena = new HeapArena(SLOT - 1);
    expect(slotsAmong(arena, [arena.take(SLOT), arena.take(SLOT - 1)])).toBe(0);
  });

  test("never lets two owners share a byte, whatever is taken and given", () => {
    const bytes = fc.oneof(
      fc.constantFrom(0, 1, SLOT - 1, SLOT, SLOT + 1, 2 * SLOT, 2 * SLOT + 1, 4 * SLOT),
      fc.nat(5 * SLOT),
    );
    const step = fc.oneof(
      { weight: 4, arbitrary: bytes.map((size) => ({ take: size })) },
      { weight: 3, arbitrary: fc.nat().map((nth) => ({ give: nth })) },
      { weight: 1, arbitrary: fc.nat().map((nth) => ({ move: nth })) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40, size: "max" }), (steps) => {
        const arena = new HeapArena(8 * SLOT);
        const owned = new Map<Uint8Array, number>();
        const gone: Uint8Array[] = [];
        let mark = 0;
        const own = (memory: Uint8Array): void => {
          mark = (mark % 250) + 1;
          memory.fill(mark);
          owned.set(memory, mark);
        };
        for (const each of steps) {
          if ("take" in each) {
            const memory = arena.take(each.take);
            expect(memory.length).toBe(each.take);
            own(memory);
          } else {
            const all = [...owned.keys()];
            const memory = all[("give" in each ? each.give : each.move) % Math.max(1, all.length)];
            if (memory === undefined) continue;
            const value = owned.get(memory) ?? 0;
            owned.delete(memory);
            if ("move" in each) {
              const moved = new Uint8Array((memory.buffer as ArrayBuffer).transfer());
              owned.set(moved, value);
            }
            arena.give(memory);
            gone.push(memory);
          }
          for (const memory of gone) arena.give(memory);
          for (const [memory, value] of owned)
            if (memory.some((byte) => byte !== value)) throw new Error("two owners share memory");
        }
      }),
      runs(30),
    );
  });
});
