/**
 * Signatures verified per second, by this library and by a loop over the plain call of the library beneath, each scheme in processes of its
 * own: once on one core, once on all of them.
 */
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { circumstances, headLine } from "./circumstances.ts";
import type { Goal } from "./goals.ts";
import { progress, textOf, type Trouble } from "./play.ts";
import { goalsTable, number, ratioText, spread, table } from "./report.ts";
import { allowedProcessors } from "./processors.ts";
import { optionsOrEnd, parseList, parseRounds } from "./values.ts";
import { CASES, type Case } from "./verify/cases.ts";
import type { Measured, Rate } from "./verify/measure.ts";

const NAMES = Object.keys(CASES);
const QUICK_PART = 16;
/** To be reached of the plain call's rate by one core, and by two. */
const CORE_LEAST = 0.95;
const TWO_CORES_LEAST = 1.8;
const BLS_LEAST = 2;
const STRETCH_MOST_MILLIS = 10;

const HELP = `bun run bench:verify [options]

Signatures verified per second: batchVerify beside a loop over the plain call of the same library.

  --only NAME[,NAME]  these alone: ${NAMES.join(", ")}
  --rounds N          rounds to take the medians of (default 5, with --quick 1)
  --quick             short runs: to see that everything works, not to compare
  --json              results as JSON on standard output
  --help              this text
`;

interface Options {
  readonly names: readonly string[];
  readonly rounds: number;
  readonly quick: boolean;
  readonly json: boolean;
  readonly help: boolean;
}

function parse(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: "string" },
      rounds: { type: "string" },
      quick: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const names = values.only === undefined ? NAMES : parseList(values.only).map(known);
  return { ...values, names, rounds: parseRounds(values.rounds ?? (values.quick ? "1" : "5")) };
}

function known(text: string): string {
  if (NAMES.includes(text)) return text;
  throw new Error(`--only: there is no ${JSON.stringify(text)}; there are ${NAMES.join(", ")}`);
}

/** How many cores, and the one to hold the process on, or null to let it run on all. */
interface Place {
  readonly cores: number;
  readonly pinned: number | null;
}

/** One core where `taskset` can hold a process there, and all that there are. */
function places(): Place[] {
  const all = { cores: availableParallelism(), pinned: null };
  const [, last] = allowedProcessors();
  return last === undefined || Bun.which("taskset") === null ? [all] : [{ cores: 1, pinned: last }, all];
}

async function measure(name: string, place: Place, { rounds, quick }: Options): Promise<Measured> {
  const { items: most, env }: Case = CASES[name]!;
  const items = Math.ceil(most / (quick ? QUICK_PART : 1));
  const script = join(import.meta.dir, "verify", "measure.ts");
  const numbers = [items, rounds, quick ? 50 : 500].map(String);
  const prefix = place.pinned === null ? [] : ["taskset", "-c", String(place.pinned)];
  const child = Bun.spawn([...prefix, process.execPath, script, name, ...numbers], {
    env: { ...process.env, ...env, ZAP_VERIFY_WORKERS: String(place.cores), ZAP_VERIFY_BACKEND: "cpu" },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`ended with ${code}\n${stderr.trim().slice(-2_000)}`);
  return JSON.parse(stdout) as Measured;
}

interface Row {
  readonly name: string;
  readonly cores: number;
  readonly contender: "plain" | "packed" | "list";
  /** Verifications per second by the clock, and by processor time of all threads. */
  readonly perSecond: number;
  readonly perCoreSecond: number;
  /** To `plain` of the same process. */
  readonly ratio: number;
  readonly coreRatio: number;
  /** Cores that it would have kept busy, had they all been free. */
  readonly wanted: number;
  readonly rounds: readonly Rate[];
}

/** What is told of a scheme beside its rates. */
interface Single {
  readonly name: string;
  readonly cores: number;
  readonly oneMicros: number;
  readonly plainMicros: number;
  readonly workedMillis: number;
  readonly passedMillis: number;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}

/** The median of the rounds' own ratios: the contenders of a round ran one right after the other. */
function ratioOf(measured: Measured, contender: Row["contender"], by: keyof Rate): number {
  return median(measured[contender].map((rate, round) => rate[by] / measured.plain[round]![by]));
}

function rowsOf(name: string, { cores }: Place, measured: Measured): Row[] {
  return (["plain", "packed", "list"] as const).map((contender) => ({
    name,
    cores,
    contender,
    perSecond: median(measured[contender].map(({ clock }) => clock)),
    perCoreSecond: median(measured[contender].map(({ processor }) => processor)),
    ratio: ratioOf(measured, contender, "clock"),
    coreRatio: ratioOf(measured, contender, "processor"),
    wanted: median(measured[contender].map(({ wanted }) => wanted)),
    rounds: measured[contender],
  }));
}

function singleOf(name: string, { cores }: Place, measured: Measured): Single {
  return {
    name,
    cores,
    oneMicros: median(measured.oneMicros),
    plainMicros: median(measured.plainMicros),
    workedMillis: Math.max(...measured.workedMillis),
    passedMillis: Math.max(...measured.passedMillis),
  };
}

function goalsOf(names: readonly string[], rows: readonly Row[], singles: readonly Single[]): Goal[] {
  const goals: Goal[] = [];
  const add = (
    what: string,
    kind: "at least" | "at most",
    limit: number,
    value: number | undefined,
  ): void => {
    const reached = value === undefined ? null : kind === "at least" ? value >= limit : value <= limit;
    goals.push({ what, needed: `${kind} ${limit}`, value: value ?? null, reached });
  };
  const packed = (name: string, cores: number) =>
    rows.find((row) => row.name === name && row.cores === cores && row.contender === "packed");
  for (const name of names) {
    const isBls = CASES[name]!.scheme === "bls12-381";
    const [one, two] = [packed(name, 1)?.coreRatio, packed(name, 2)?.ratio];
    const to = isBls ? "batch to one by one" : "to the plain call";
    add(`${name} on one core, ${to}`, "at least", isBls ? BLS_LEAST : CORE_LEAST, one);
    add(`${name} on two cores, ${to}`, "at least", isBls ? BLS_LEAST : TWO_CORES_LEAST, two);
    const stretch = singles.findLast((single) => single.name === name)?.workedMillis;
    if (stretch === undefined || !Number.isNaN(stretch)) {
      add(`${name}, longest stretch on the event loop, ms`, "at most", STRETCH_MOST_MILLIS, stretch);
    }
  }
  return goals;
}

function ratesTable(rows: readonly Row[]): string {
  const cells = rows.map((row) => [
    row.name,
    `${row.cores} ${row.cores === 1 ? "core" : "cores"}`,
    row.contender,
    number(row.perSecond, 0),
    ratioText(row.ratio),
    spread(
      row.rounds.map(({ clock }) => clock),
      row.perSecond,
    ),
    number(row.perCoreSecond, 0),
    ratioText(row.coreRatio),
    Number.isNaN(row.wanted) ? "-" : number(row.wanted, 2),
  ]);
  const head = [
    "case",
    "on",
    "contender",
    "per second",
    "to plain",
    "spread",
    "per core and second",
    "to plain",
    "cores wanted",
  ];
  return table(head, cells, 3, 2);
}

function singlesTable(singles: readonly Single[]): string {
  const cells = singles.map((single) => [
    single.name,
    `${single.cores} ${single.cores === 1 ? "core" : "cores"}`,
    number(single.oneMicros, 1),
    number(single.plainMicros, 1),
    number(single.oneMicros - single.plainMicros, 1),
    number(single.workedMillis, 1),
    number(single.passedMillis, 1),
  ]);
  const head = [
    "case",
    "on",
    "batch of 1, us",
    "plain, us",
    "dispatch, us",
    "stretch, ms",
    "by the clock, ms",
  ];
  return table(head, cells, 2, 1);
}

const options = optionsOrEnd("bench:verify", HELP, parse);
const head = { ...circumstances(), rounds: options.rounds };
const failed: Trouble[] = [];
const rows: Row[] = [];
const singles: Single[] = [];
for (const name of options.names) {
  for (const place of places()) {
    progress(`${name}, ${place.cores === 1 ? "one core" : `${place.cores} cores`}`);
    try {
      const measured = await measure(name, place, options);
      rows.push(...rowsOf(name, place, measured));
      singles.push(singleOf(name, place, measured));
    } catch (error) {
      failed.push({ contender: name, reason: textOf(error) });
    }
  }
}
progress("");
const goals = goalsOf(options.names, rows, singles);
if (options.json) console.log(JSON.stringify({ ...head, rows, singles, goals, failed }, null, 2));
else {
  console.log(`${headLine(head)}\n`);
  if (rows.length > 0) console.log(`${ratesTable(rows)}\n\n${singlesTable(singles)}\n\n${goalsTable(goals)}`);
}
for (const { contender, reason } of failed) console.error(`\nfailed: ${contender}: ${reason}`);
process.exitCode = failed.length === 0 ? 0 : 1;
