/**
 * Signatures verified per second, by this library and by a loop over the plain call of the library beneath, each scheme in processes of its
 * own: once on one core, once on all of them.
 */
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { circumstances, headLine } from "./circumstances.ts";
import { progress, textOf, type Trouble } from "./play.ts";
import { goalsTable } from "./report.ts";
import { allowedProcessors } from "./processors.ts";
import { optionsOrEnd, parseList, parseRounds } from "./values.ts";
import { CASES, type Case } from "./verify/cases.ts";
import { measureKernel, type KernelRates } from "./verify/kernel.ts";
import type { Measured } from "./verify/measure.ts";
import {
  goalsOf,
  kernelTable,
  ratesTable,
  rowsOf,
  singleOf,
  singlesTable,
  type Row,
  type Single,
} from "./verify/tables.ts";

const NAMES = Object.keys(CASES);
const QUICK_PART = 16;
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
      rows.push(...rowsOf(name, place.cores, measured));
      singles.push(singleOf(name, place.cores, measured));
    } catch (error) {
      failed.push({ contender: name, reason: textOf(error) });
    }
  }
}
let kernel: KernelRates | null = null;
if (options.names.includes("ed25519")) {
  progress("ed25519, the kernel");
  try {
    kernel = await measureKernel(options.rounds, options.quick ? 50 : 500);
  } catch (error) {
    failed.push({ contender: "the kernel of ed25519", reason: textOf(error) });
  }
}
progress("");
const goals = goalsOf(options.names, rows, singles);
if (options.json) console.log(JSON.stringify({ ...head, rows, singles, kernel, goals, failed }, null, 2));
else {
  console.log(`${headLine(head)}\n`);
  if (rows.length > 0) console.log(`${ratesTable(rows)}\n\n${singlesTable(singles)}\n`);
  if (kernel !== null) console.log(`${kernelTable(kernel)}\n`);
  // Batches of a short run are too small for the goals to mean anything.
  if (rows.length > 0 && !options.quick) console.log(goalsTable(goals));
}
for (const { contender, reason } of failed) console.error(`\nfailed: ${contender}: ${reason}`);
process.exitCode = failed.length === 0 ? 0 : 1;
