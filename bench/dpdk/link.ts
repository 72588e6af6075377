/**
 * Two processes over net_memif: the dpdk transport, the same nodes without Bun, and packets without flows beside DPDK's own testpmd; the
 * default transport in the same run. Start here for links, at `../dpdk.ts` for packets and the ring.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { COMPILER, Workshop } from "../../test/native/toolchain.ts";
import { dpdkBuild, LIBDPDK } from "../../test/native/dpdk-toolchain.ts";
import { dpdkShims } from "../../test/support/dpdk.ts";
import { circumstances, headLine } from "../circumstances.ts";
import { killAll } from "../measure.ts";
import { SIZE_MIN } from "../message.ts";
import { play, prepareAll, progress, textOf, type Trouble } from "../play.ts";
import { placements } from "../processors.ts";
import { number, roundTripTable, spread, table, throughputTable } from "../report.ts";
import { type Case, median, summarize } from "../results.ts";
import { optionsOrEnd, parseList, parseRounds, parseSizes } from "../values.ts";
import { DEFAULT, linkContenders } from "./contenders.ts";
import { packetRound, type PacketRow, TESTPMD } from "./packets.ts";
import { killPrograms } from "./program.ts";

const SIZES = [64, 256, 1_408, 4_096, 65_536, 1_048_576];
const QUICK_SIZES = [64, 65_536];
const ROUND_TRIP_SIZES = [64, 65_536];
/** The part without flows, as `--only` calls it. */
const PACKETS = "packets";

let shop: Workshop | null = null;
let building: Promise<{ pair: string; packets: string; shims: string }> | null = null;
const built = () => (building ??= build());
async function build() {
  shop = new Workshop();
  const parts = await dpdkBuild(shop, ["-O3"]);
  return {
    pair: await parts.program("pair"),
    packets: await parts.program("packets"),
    shims: dpdkShims(),
  };
}
const contenders = linkContenders(built);

const HELP = `bun bench/dpdk/link.ts [options]

Two processes over DPDK's shared-memory device: messages by the dpdk transport and by its nodes without Bun, against the
default transport; packets by our queues against DPDK's own testpmd.

  --only NAME[,NAME]   these alone: ${[...contenders.map(({ name }) => name), PACKETS].join(", ")}
  --sizes SIZE[,SIZE]  these message sizes alone, for example 256,64KiB,1MiB
                       (round trips are made at 64 B and 64 KiB, where they are among them)
  --rounds N           rounds to take the medians of (default 3, with --quick 1)
  --quick              few sizes, short runs: to see that everything works, not to compare
  --json               results as JSON on standard output
  --help               this text
`;

function parse(args: string[]) {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: "string" },
      sizes: { type: "string" },
      rounds: { type: "string" },
      quick: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const { quick, json, help } = values;
  const names = [...contenders.map(({ name }) => name), PACKETS];
  const quickNames = [DEFAULT, "dpdk-yield", "c-yield", PACKETS];
  const only = values.only === undefined ? (quick ? quickNames : names) : parseList(values.only);
  const unknown = only.find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new Error(`--only: there is no ${JSON.stringify(unknown)}; there are ${names.join(", ")}`);
  const sizes =
    values.sizes === undefined ? (quick ? QUICK_SIZES : SIZES) : parseSizes(values.sizes, SIZE_MIN);
  return {
    ...{ only, sizes, quick, json, help },
    rounds: parseRounds(values.rounds ?? (quick ? "1" : "3")),
    warmMillis: quick ? 50 : 400,
    runMillis: quick ? 150 : 600,
  };
}

const options = optionsOrEnd("bench/dpdk/link", HELP, parse);

function fail(text: string): never {
  console.error(`bench/dpdk/link: ${text}`);
  process.exit(1);
}

if (process.platform !== "linux") fail("DPDK's devices are Linux's");
if (COMPILER === null) fail("there is no C compiler");
if (LIBDPDK === null) fail("pkg-config knows no libdpdk here: install libdpdk-dev and pkg-config");

interface PacketResult {
  readonly mode: PacketRow["mode"];
  readonly frameBytes: number;
  readonly what: string;
  /** Packets per second, or microseconds; the median of the rounds. */
  readonly value: number;
  readonly p99: number | null;
  readonly rounds: readonly number[];
}

async function packets(
  folder: string,
  failed: Trouble[],
  skipped: Trouble[],
): Promise<readonly PacketResult[]> {
  const apart = placements().find(({ name }) => name === "two cores")?.processors ?? null;
  if (apart === null) {
    skipped.push({ contender: PACKETS, reason: "each side needs a core, and taskset" });
    return [];
  }
  if (TESTPMD === null)
    skipped.push({ contender: "testpmd", reason: "no dpdk-testpmd here: install dpdk-dev" });
  const place = {
    ...{ server: apart.receive, client: apart.send, folder, millis: options.runMillis },
    packets: (await built()).packets,
  };
  const rows: PacketRow[] = [];
  for (let round = 0; round < options.rounds; round++) {
    progress(`round ${round + 1} of ${options.rounds}: packets`);
    const trouble = (what: string, error: unknown): void =>
      void failed.push({ contender: PACKETS, reason: `${what}: ${textOf(error)}` });
    rows.push(...(await packetRound(place, trouble)));
  }
  progress("");
  const groups = Map.groupBy(rows, ({ mode, frameBytes, what }) => `${mode} ${frameBytes} ${what}`);
  return [...groups.values()].map((group) => {
    const { mode, frameBytes, what } = group[0]!;
    const rounds = group.map(({ value }) => value);
    const p99s = group.flatMap(({ p99 }) => (p99 === undefined ? [] : [p99]));
    return {
      ...{ mode, frameBytes, what, rounds },
      value: median(rounds),
      p99: p99s.length === 0 ? null : median(p99s),
    };
  });
}

function packetTables(rows: readonly PacketResult[]): string {
  const of = (mode: PacketRow["mode"]): readonly PacketResult[] => rows.filter((row) => row.mode === mode);
  const oneWay = of("one way").map(({ frameBytes, what, value, rounds }) => [
    ...[`${frameBytes} B`, what, number(value / 1e6, 2)],
    ...[number((value * frameBytes) / 1e6, 0), spread(rounds, value)],
  ]);
  const trips = of("round trip").map(({ frameBytes, what, value, p99, rounds }) => [
    ...[`${frameBytes} B`, what, number(value, 2), number(p99 ?? NaN, 2), spread(rounds, value)],
  ]);
  return [
    "Packets one way; each side spins on a core of its own\n",
    table(["frame", "what", "Mpps", "MB/s", "spread"], oneWay, 2, 1),
    "\nPackets there and back, likewise\n",
    table(["frame", "what", "median us", "p99 us", "spread"], trips, 2, 1),
  ].join("\n");
}

async function main(): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), "zap-link-"));
  const clean = (): void => {
    rmSync(folder, { recursive: true, force: true });
    shop?.[Symbol.dispose]();
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      killAll();
      killPrograms();
      clean();
      process.exit(130);
    });
  }
  try {
    const skipped: Trouble[] = [];
    const failed: Trouble[] = [];
    const all = placements();
    const apart = all.find(({ name }) => name === "two cores") ?? all[0]!;
    const cases: Case[] = options.sizes.map((size) => ({ mode: "throughput", size, placement: apart }));
    for (const size of ROUND_TRIP_SIZES.filter((each) => options.sizes.includes(each)))
      for (const placement of options.quick ? [apart] : all)
        cases.push({ mode: "roundtrip", size, placement });
    const chosen = contenders.filter(({ name }) => options.only.includes(name));
    const commands = await prepareAll(chosen, folder, skipped, failed);
    const samples = await play(cases, commands, options, failed);
    const names = chosen.map(({ name }) => name);
    const results = summarize(cases, names, samples, DEFAULT);
    const framed = options.only.includes(PACKETS) ? await packets(folder, failed, skipped) : [];
    const { rounds, runMillis } = options;
    const head = { ...circumstances(), dpdk: LIBDPDK!.version, rounds, runMillis, oneWay: apart.name };
    if (options.json) {
      console.log(JSON.stringify({ ...head, ...results, packets: framed, skipped, failed }, null, 2));
    } else {
      console.log(headLine(head));
      for (const { name, what } of chosen) console.log(`  ${name.padEnd(12)}${what}`);
      for (const { contender, reason } of skipped) console.log(`  ${contender} skipped: ${reason}`);
      if (results.throughput.length > 0) {
        console.log("\nMessages one way; a ratio above 1 is faster\n");
        console.log(throughputTable(results, DEFAULT));
      }
      if (results.roundTrip.length > 0) {
        console.log("\nMessages there and back; a ratio below 1 is faster\n");
        console.log(roundTripTable(results, DEFAULT));
      }
      if (framed.length > 0) console.log(`\n${packetTables(framed)}`);
    }
    for (const { contender, reason } of failed) console.error(`\nfailed: ${contender}: ${reason}`);
    return failed.length === 0 ? 0 : 1;
  } finally {
    clean();
  }
}

process.exit(await main());
