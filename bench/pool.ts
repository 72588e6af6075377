/**
 * What a buffer of 4 KiB costs: nanoseconds for getting one and giving it back, as medians over rounds in which every contender runs in
 * turn. `bun bench/pool.ts [--rounds 15] [--cuda /absolute/path/of/libcuda.so.1]`: with a CUDA driver, or a double of one, also
 * what it would be to ask the driver for each buffer.
 */
import { parseArgs } from "node:util";
import { heapKind, openDeviceMemory, SlabPool, type MemoryKind } from "../lib/memory/index.ts";

const SIZE = 4_096;
const BUFFERS = 200_000;

interface Contender {
  readonly name: string;
  /** Gets a buffer of `SIZE` bytes and gives it back, `count` times. */
  readonly run: (count: number) => void | Promise<void>;
  /** What part of the buffers is enough. Default: all. */
  readonly share?: number;
  readonly close?: () => void | Promise<void>;
}

let sink = 0;

function contenders(): Contender[] {
  const pool = new SlabPool(heapKind(), { poolBytes: 64 * 1024 * 1024, debug: false });
  const close = async (): Promise<void> => void (await pool.close());
  return [
    {
      name: "pool, tryAlloc",
      run(count) {
        for (let i = 0; i < count; i++) pool.tryAlloc(SIZE)!.release();
      },
    },
    {
      name: "pool, tryAlloc, a byte written",
      run(count) {
        for (let i = 0; i < count; i++) {
          const buffer = pool.tryAlloc(SIZE)!;
          buffer.bytes[i % SIZE] = i;
          buffer.release();
        }
      },
    },
    {
      name: "pool, tryAlloc, 64 at a time",
      run(count) {
        const held = pool.tryAlloc(SIZE)!;
        held.release();
        const some = new Array<typeof held>(64).fill(held);
        for (let i = 0; i < count; i += 64) {
          for (let j = 0; j < 64; j++) some[j] = pool.tryAlloc(SIZE)!;
          for (let j = 0; j < 64; j++) some[j]!.release();
        }
      },
    },
    {
      name: "pool, await alloc",
      async run(count) {
        for (let i = 0; i < count; i++) (await pool.alloc(SIZE)).release();
      },
      close,
    },
    {
      name: "new Uint8Array",
      run(count) {
        for (let i = 0; i < count; i++) sink += new Uint8Array(SIZE).length;
      },
    },
    {
      name: "new Uint8Array, a byte written",
      run(count) {
        for (let i = 0; i < count; i++) {
          const bytes = new Uint8Array(SIZE);
          bytes[i % SIZE] = i;
          sink += bytes[0]!;
        }
      },
    },
  ];
}

/** No pool: an allocation of the runtime for each buffer. */
function perBuffer(kind: MemoryKind): Contender {
  return {
    name: `${kind.name}, a region for each`,
    share: 1 / 50,
    run(count) {
      for (let i = 0; i < count; i++) kind.allocRegion(SIZE).free();
    },
    close: () => kind.close(),
  };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}

/** Runs each in turn, round after round; the first round warms up and does not count. */
async function compare(all: readonly Contender[], rounds: number): Promise<Map<string, number[]>> {
  const taken = new Map<string, number[]>(all.map(({ name }) => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    for (const { name, run, share = 1 } of all) {
      const count = Math.round(BUFFERS * share);
      const start = Bun.nanoseconds();
      await run(count);
      if (round > 0) taken.get(name)!.push((Bun.nanoseconds() - start) / count);
    }
  }
  for (const { close } of all) await close?.();
  return taken;
}

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "15" }, cuda: { type: "string" } },
});
const rounds = Number(values.rounds);
if (!Number.isInteger(rounds) || rounds < 1)
  throw new Error(`--rounds ${values.rounds}: a whole number from 1 on`);
const all = contenders();
if (values.cuda !== undefined)
  all.push(perBuffer(await openDeviceMemory({ kind: "cuda", runtime: values.cuda })));
const taken = await compare(all, rounds);
console.log(`bun ${Bun.version} · ${SIZE} bytes · ${rounds} rounds of ${BUFFERS}\n`);
for (const [name, nanos] of taken) {
  const range = `${Math.min(...nanos).toFixed(0)} to ${Math.max(...nanos).toFixed(0)}`;
  console.log(`${name.padEnd(32)} ${median(nanos).toFixed(0).padStart(6)} ns  (${range})`);
}
if (sink < 0) console.log(sink);
