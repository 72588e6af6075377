/**
 * `gpudirect` beside libibverbs' own programs, over the soft-RoCE devices of the QEMU guest of `test/rdma/guest`: round trips and bandwidth,
 * our nodes in C and through Bun, all in one boot. The processor is emulated: only the ratios mean anything.
 */
import { parseArgs } from "node:util";
import { join } from "node:path";
import { COMPILER, ROOT, gpudirectSources, Workshop } from "../test/native/toolchain.ts";
import { GuestError, hostFault, runInGuest } from "../test/rdma/guest/job.ts";
import { theNative } from "../test/support/native.ts";
import { circumstances, headLine } from "./circumstances.ts";
import type { Goal } from "./goals.ts";
import type { Trouble } from "./play.ts";
import { bytesText, goalsTable, number, ratioText, spread, table } from "./report.ts";
import { ENTRANTS, PARTS, scriptOf, type Mode, type Part } from "./rdma/plan.ts";
import { readOutput, type Row } from "./rdma/results.ts";
import { optionsOrEnd, parseList, parseRounds } from "./values.ts";

const HELP = `bun bench/rdma.ts [options]

Boots the RDMA guest and measures there, by turns: ibv_rc_pingpong and perftest, our nodes without Bun, and the gpudirect
transport. The guest's processor is emulated, and its RDMA is the kernel's software: compare within one run only.

  --only PART[,PART]  these alone: trips and bandwidth, without Bun; bun, the transport
  --rounds N          rounds to take the medians of (default 3, with --quick 1)
  --seconds N         how long the guest may take (default 240 for a round); what was measured by then is shown
  --quick             few cases, short runs: to see that everything works, not to compare
  --json              results as JSON on standard output
  --help              this text
`;

/** A host whose processors are wanted elsewhere makes all of it many times slower. */
const ROUND_SECONDS = 240;
const MEMORY_MIB = 1_536;
const REGION_BYTES = 128 * 2 ** 20;
const TRIP_MOST = 1.3;
const BANDWIDTH_LEAST = 0.9;

function partOf(text: string): Part {
  const found = PARTS.find((part) => part === text);
  if (found !== undefined) return found;
  throw new Error(`--only: there is no ${JSON.stringify(text)}; there are ${PARTS.join(", ")}`);
}

function parse(args: string[]) {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: "string" },
      rounds: { type: "string" },
      seconds: { type: "string" },
      quick: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const only = values.only === undefined ? PARTS : parseList(values.only).map(partOf);
  const rounds = parseRounds(values.rounds ?? (values.quick ? "1" : "3"));
  const seconds = values.seconds === undefined ? rounds * ROUND_SECONDS : Number(values.seconds);
  if (!(seconds >= 10 && seconds <= 3_600))
    throw new Error(`--seconds: 10 to 3600 is possible, got ${JSON.stringify(values.seconds)}`);
  return { ...values, only, rounds, seconds };
}

function fail(text: string): never {
  console.error(`bench/rdma: ${text}`);
  process.exit(1);
}

const options = optionsOrEnd("bench/rdma", HELP, parse);
const fault = hostFault() ?? (COMPILER === null ? "there is no C compiler" : null);
if (fault !== null) fail(fault);

async function measure(): Promise<string> {
  using shop = new Workshop();
  const parts = [join(ROOT, "bench/rdma/node_bench.c"), ...gpudirectSources()];
  const program = await shop.link("node_bench", parts, ["-O2"]);
  const { output } = await runInGuest({
    name: "bench",
    programs: [program, join(theNative().shims, "libzap_gpudirect.so")],
    script: scriptOf(options.rounds, options.quick, options.only),
    timeoutMillis: options.seconds * 1_000,
    memoryMiB: MEMORY_MIB,
    env: {
      ZAP_LIB_DIR: "/job/bin",
      ZAP_GPUDIRECT_HOST_MEMORY: "1",
      ZAP_GPUDIRECT_GID_INDEX: "0",
      ZAP_GPUDIRECT_REGION_BYTES: String(REGION_BYTES),
    },
  });
  return output;
}

function tableOf(rows: readonly Row[], mode: Mode): string {
  const unit = mode === "roundtrip" ? "us" : "MB/s";
  const found = rows
    .filter((row) => row.mode === mode)
    .toSorted((a, b) => a.bytes - b.bytes || b.cores.localeCompare(a.cores));
  const copies = ({ copied }: Row): string =>
    copied === null ? "" : `${copied.sent ? "sent" : "no"}${copied.received > 0 ? ", received" : ""}`;
  const cells = found.map((row) => [
    ...[
      bytesText(row.bytes),
      `${row.cores} ${row.cores === "one" ? "core" : "cores"}`,
      row.entrant,
      copies(row),
    ],
    ...[number(row.value, 1), ratioText(row.ratio), spread(row.rounds, row.value)],
    ...[number(row.best, 1), ratioText(row.bestRatio)],
  ]);
  return table(["size", "on", "who", "copied", unit, "ratio", "spread", "best", "ratio"], cells, 4, 2);
}

/** Of the C path alone: of Bun's, most is what emulating it takes. */
function goalsOf(rows: readonly Row[]): Goal[] {
  const found: Goal[] = [];
  const add = (row: Row | undefined, what: string, most: boolean): void => {
    const value = row?.ratio ?? null;
    const limit = most ? TRIP_MOST : BANDWIDTH_LEAST;
    const reached = value === null ? null : most ? value <= limit : value >= limit;
    found.push({ what, needed: `${most ? "at most" : "at least"} ${limit}`, value, reached });
  };
  const of = (mode: Mode, bytes: number, cores: string, entrant: string) =>
    rows.find(
      (row) => row.mode === mode && row.bytes === bytes && row.cores === cores && row.entrant === entrant,
    );
  for (const bytes of [64, 4_096]) {
    const size = bytesText(bytes);
    add(of("roundtrip", bytes, "two", "c-drive"), `${size} round trip, polling, to ibv_rc_pingpong`, true);
    add(of("roundtrip", bytes, "one", "c-wake"), `${size} round trip, sleeping, to ibv_rc_pingpong -e`, true);
  }
  for (const bytes of [65_536, 1_048_576]) {
    const size = bytesText(bytes);
    add(of("thereAndBack", bytes, "one", "c-wake"), `${size} there and back, to ibv_rc_pingpong -e`, false);
    add(of("oneway", bytes, "two", "c-wake"), `${size} one way, to ib_send_bw`, false);
  }
  return found;
}

const loadBefore = circumstances().load;
const failed: Trouble[] = [];
let output: string;
try {
  output = await measure();
} catch (error) {
  if (!(error instanceof GuestError)) throw error;
  if (error.fault !== "time" || !error.output.includes("@ ")) fail(error.message);
  failed.push({ contender: "the guest", reason: `took longer than ${options.seconds} s` });
  // What was under way is no figure.
  output = error.output.slice(0, error.output.lastIndexOf("@ "));
}
const rows = readOutput(output, options.quick, failed);
const head = {
  ...circumstances(),
  loadBefore,
  guest: "soft-RoCE, 2 emulated processors",
  rounds: options.rounds,
};
if (options.json) console.log(JSON.stringify({ ...head, rows, goals: goalsOf(rows), failed }, null, 2));
else {
  console.log(headLine(head));
  for (const { name, what } of ENTRANTS) console.log(`  ${name.padEnd(14)}${what}`);
  console.log(
    "  bun           the transport, awaiting send and recv; bun-poll asks its ring in a loop that yields;",
  );
  console.log("                bun-plain sends bytes that do not lie in a buffer of the transport's");
  const titles = {
    roundtrip: "There and back; a ratio below 1 is faster",
    thereAndBack: "There and back, large; both directions counted; a ratio above 1 is faster",
    oneway: "One way; a ratio above 1 is faster",
  } as const;
  for (const mode of ["roundtrip", "thereAndBack", "oneway"] as const)
    if (rows.some((row) => row.mode === mode)) console.log(`\n${titles[mode]}\n\n${tableOf(rows, mode)}`);
  console.log(`\n${goalsTable(goalsOf(rows))}`);
}
for (const { contender, reason } of failed) console.error(`\nfailed: ${contender}: ${reason}`);
process.exit(failed.length === 0 ? 0 : 1);
