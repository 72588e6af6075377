/**
 * What a packet costs from the burst to the hand-off ring, over DPDK's software devices: without Bun in the loop, a C program, and with it,
 * the ring consumed by JavaScript; and what a thread that polls costs a process that does something else. Medians over rounds.
 */
import { parseArgs } from "node:util";
import { join } from "node:path";
import { COMPILER, finish, Workshop } from "../test/native/toolchain.ts";
import { dpdkBuild, LIBDPDK } from "../test/native/dpdk-toolchain.ts";
import { circumstances, headLine } from "./circumstances.ts";
import { IDLES } from "./dpdk/rig.ts";
import { progress } from "./play.ts";
import { placements } from "./processors.ts";
import { number, table } from "./report.ts";
import { median } from "./results.ts";
import { optionsOrEnd, parseRounds } from "./values.ts";

const HELP = `bun bench/dpdk.ts [options]

Nanoseconds for a packet from DPDK's burst to the hand-off ring, for frames of 64 and 1500 bytes, in C and with the ring consumed
in Bun; and what a polling thread takes from a process that does something else. With one core a figure is time that the thread
has run. With two, every thread spins: it means something only while nobody else needs either of them; packets that found the
ring full say that somebody did.

  --rounds N    rounds to take the medians of (default 5, with --quick 1)
  --seconds N   how long each row of a round takes, 0.05 to 5 (default 0.5, with --quick 0.1)
  --quick       short: to see that everything works, not to compare
  --hugepages   on hugepages, of which 128 MiB must be free; else on ordinary pages
  --json        results as JSON on standard output
  --help        this text
`;

/** A line that the programs print. */
interface Line {
  readonly what: string;
  readonly device: string;
  readonly bytes: number;
  readonly cores: string;
  /** Packets for the ring, and those of them that arrived there and were good. */
  readonly packets: number;
  readonly good: number;
  /** Dropped, as the consumer was behind. */
  readonly full: number;
  readonly nanos: number;
  readonly mpps: number;
}

/** A line of `dpdk/beside-child.ts`. */
interface Beside {
  readonly idle: string;
  readonly roundsPerSecond: number;
  readonly lateMicros: number;
  readonly busyCores: number;
  readonly quietCores: number;
}

function parse(args: string[]) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: "string" },
      seconds: { type: "string" },
      quick: { type: "boolean", default: false },
      hugepages: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const text = values.seconds ?? (values.quick ? "0.1" : "0.5");
  const seconds = /^\d+(\.\d+)?$/.test(text) ? Number(text) : NaN;
  if (!(seconds >= 0.05 && seconds <= 5)) {
    throw new Error(`--seconds: 0.05 to 5 is possible, got ${JSON.stringify(text)}`);
  }
  return { ...values, rounds: parseRounds(values.rounds ?? (values.quick ? "1" : "5")), seconds };
}

function fail(text: string): never {
  console.error(`bench/dpdk: ${text}`);
  process.exit(1);
}

const options = optionsOrEnd("bench/dpdk", HELP, parse);
if (COMPILER === null) fail("there is no C compiler");
if (LIBDPDK === null) fail("pkg-config knows no libdpdk here: install libdpdk-dev and pkg-config");

async function run<T>(words: readonly string[]): Promise<T[]> {
  const env: Record<string, string> = options.hugepages ? { ZAP_TEST_HUGEPAGES: "1" } : {};
  const { code, output } = await finish(words, env);
  if (code !== 0) fail(output.trim());
  return output
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as T);
}

/** The middle of each field, over the rounds. */
function middle<T extends object>(rows: readonly T[]): T {
  const entries = Object.entries(rows[0]!).map(([name, value]) => [
    name,
    typeof value === "number" ? median(rows.map((row) => Number(row[name as keyof T]))) : (value as unknown),
  ]);
  return Object.fromEntries(entries) as T;
}

using shop = new Workshop();
const parts = await dpdkBuild(shop, ["-O3"]);
const [program, library] = [await parts.program("bench"), await parts.library("bench_lib")];
const child = (name: string, ...words: string[]): string[] => [
  ...[process.execPath, join(import.meta.dir, "dpdk", `${name}-child.ts`)],
  ...[library, String(options.seconds), ...words],
];

const lines: Line[][] = [];
const besides: { readonly on: string; readonly line: Beside }[] = [];
const idles = ["none", ...Object.keys(IDLES)];
for (let round = 0; round < options.rounds; round++) {
  progress(`round ${round + 1} of ${options.rounds}`);
  const inC = await run<Line>([program, String(options.seconds)]);
  lines.push([
    ...inC,
    ...(await run<Line>(child("ring", "turn"))),
    ...(await run<Line>(child("ring", "beside"))),
  ]);
  for (const { name, processors } of placements()) {
    const on =
      processors === null
        ? []
        : ["taskset", "-c", [...new Set([processors.receive, processors.send])].join()];
    for (const idle of idles) {
      const [line] = await run<Beside>([...on, ...child("beside", idle)]);
      besides.push({ on: name, line: line! });
    }
  }
}
progress("");

const results = lines[0]!
  .map((_, at) => middle(lines.map((round) => round[at]!)))
  .toSorted((a, b) => a.bytes - b.bytes || a.device.localeCompare(b.device));
const beside = [...Map.groupBy(besides, ({ on, line }) => `${on} ${line.idle}`).values()].map((group) => ({
  on: group[0]!.on,
  ...middle(group.map(({ line }) => line)),
}));
const head = {
  ...circumstances(),
  dpdk: LIBDPDK.version,
  pages: options.hugepages ? "huge" : "ordinary",
  rounds: options.rounds,
  backOff: "spin",
};
if (options.json) console.log(JSON.stringify({ ...head, results, beside }, null, 2));
else {
  console.log(headLine(head));
  const rows = results.map((line) => [
    `${line.bytes} B`,
    line.device,
    line.what,
    line.cores,
    number(line.nanos, 1),
    line.packets <= 1 ? "" : number(line.mpps, 1),
    line.packets <= 1 ? "" : `${number((100 * line.full) / (line.full + line.packets || 1), 1)} %`,
  ]);
  console.log(table(["frame", "device", "what", "cores", "ns/packet", "Mpps", "ring full"], rows, 3, 2));
  console.log("\nA process with timers and garbage, and a thread that polls a port where nothing happens\n");
  const others = beside.map((row) => {
    const alone = beside.find(({ on, idle }) => on === row.on && idle === "none")!;
    return [
      ...[row.on, row.idle, number(row.roundsPerSecond, 0)],
      number(row.roundsPerSecond / alone.roundsPerSecond, 2),
      ...[number(row.lateMicros, 0), number(row.busyCores, 2), number(row.quietCores, 3)],
    ];
  });
  const titles = ["on", "thread", "rounds/s", "to none", "timer late p99 us", "cores busy", "cores quiet"];
  console.log(table(titles, others, 2, 1));
}
