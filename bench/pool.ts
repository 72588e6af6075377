/**
 * What a buffer of 4 KiB costs: nanoseconds for getting one and giving it back, as medians over rounds in which every contender runs in
 * turn. With a CUDA driver, or a double of one, also what it would be to ask the driver for each buffer.
 */
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { heapKind, openDeviceMemory, SlabPool, type DeviceMemory } from "../lib/memory/index.ts";
import { circumstances, headLine } from "./circumstances.ts";
import { number, table } from "./report.ts";
import { optionsOrEnd, parseRounds } from "./values.ts";

const SIZE = 4_096;
const BUFFERS = 200_000;
/** Calls into a driver take so much longer that fewer are enough. */
const DRIVER_BUFFERS = 4_000;

const HELP = `bun run bench:pool [options]

Nanoseconds for getting a buffer of ${SIZE} bytes and giving it back.

  --rounds N   rounds to take the medians of (default 15)
  --cuda PATH  also a region of the device's preferred memory for each buffer, through the
               libcuda.so.1 at PATH, or the double that \`bun run build doubles\` makes
  --json       results as JSON on standard output
  --help       this text
`;

interface Contender {
  readonly name: string;
  /** Gets a buffer of `SIZE` bytes and gives it back, `count` times. */
  readonly run: (count: number) => void | Promise<void>;
  /** How many buffers a round is. Default: `BUFFERS`. */
  readonly buffers?: number;
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

/** No pool: a region of the memory that the device prefers for each buffer. */
function perBuffer(kind: DeviceMemory): Contender {
  return {
    name: `${kind.device.name}, a region for each`,
    buffers: DRIVER_BUFFERS,
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
    for (const { name, run, buffers = BUFFERS } of all) {
      const start = Bun.nanoseconds();
      await run(buffers);
      if (round > 0) taken.get(name)!.push((Bun.nanoseconds() - start) / buffers);
    }
  }
  for (const { close } of all) await close?.();
  return taken;
}

interface Row {
  readonly contender: string;
  readonly buffers: number;
  readonly medianNanos: number;
  readonly leastNanos: number;
  readonly mostNanos: number;
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

function parse(args: string[]) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: "string", default: "15" },
      cuda: { type: "string" },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const cuda = values.cuda === undefined ? null : resolve(values.cuda);
  if (cuda !== null && !isFile(cuda)) throw new Error(`--cuda: there is no library at ${cuda}`);
  return { ...values, cuda, rounds: parseRounds(values.rounds) };
}

async function main(): Promise<void> {
  const { rounds, cuda, json } = optionsOrEnd("bench:pool", HELP, parse);
  const all = contenders();
  if (cuda !== null) all.push(perBuffer(await openDeviceMemory({ kind: "cuda", runtime: cuda })));
  const head = { ...circumstances(), size: SIZE, rounds };
  const taken = await compare(all, rounds);
  const results = all.map(({ name, buffers = BUFFERS }): Row => ({
    contender: name,
    buffers,
    medianNanos: median(taken.get(name)!),
    leastNanos: Math.min(...taken.get(name)!),
    mostNanos: Math.max(...taken.get(name)!),
  }));
  if (json) {
    console.log(JSON.stringify({ ...head, results }, null, 2));
    return;
  }
  const cells = results.map(({ contender, buffers, ...nanos }) => [
    contender,
    number(nanos.medianNanos, 0),
    `${number(nanos.leastNanos, 0)} to ${number(nanos.mostNanos, 0)}`,
    number(buffers, 0),
  ]);
  console.log(`${headLine(head)}\n`);
  console.log(table(["contender", "median ns", "from, to", "buffers/round"], cells, 1, 0));
}

try {
  await main();
} catch (error) {
  console.error(`bench:pool: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
if (sink < 0) console.log(sink);
