/**
 * The benchmark: messages between two processes over loopback, one contender after the other in every round.
 *
 * What lives here: `contenders.ts` (who), `peers/` (one file each), `child.ts` (a process of a measurement), `measure.ts` (one
 * measurement), `results.ts`, `goals.ts` and `report.ts` (what came of it), and two smaller benchmarks, `pool.ts` and `receive/`, which share
 * `values.ts` (options) and `circumstances.ts`. May import: the public entry of the library, in
 * `peers/zap.ts` alone. Start here.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { circumstances, headLine } from "./circumstances.ts";
import { CONTENDERS, type Contender } from "./contenders.ts";
import { type Goal, goals } from "./goals.ts";
import { killAll, measure } from "./measure.ts";
import { HELP, type Options, parseOptions } from "./options.ts";
import { placements } from "./processors.ts";
import { bytesText, goalsTable, roundTripTable, throughputTable } from "./report.ts";
import { type Case, type Results, type Sample, jobOf, summarize } from "./results.ts";
import { optionsOrEnd } from "./values.ts";

interface Trouble {
  readonly contender: string;
  readonly reason: string;
}

/** Progress goes to standard error, and only where a person looks at it. */
function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function prepareAll(
  contenders: readonly Contender[],
  folder: string,
  skipped: Trouble[],
  failed: Trouble[],
) {
  const commands = new Map<string, readonly string[]>();
  for (const contender of contenders) {
    try {
      const prepared = await contender.prepare(folder);
      if ("command" in prepared) commands.set(contender.name, prepared.command);
      else skipped.push({ contender: contender.name, reason: prepared.skip });
    } catch (error) {
      failed.push({ contender: contender.name, reason: textOf(error) });
    }
  }
  return commands;
}

/** Every contender in turn for each case, round after round; whoever fails at a case is not asked for it again. */
async function play(
  cases: readonly Case[],
  commands: ReadonlyMap<string, readonly string[]>,
  options: Options,
  failed: Trouble[],
): Promise<Sample[]> {
  const samples: Sample[] = [];
  const out = new Set<string>();
  for (let round = 0; round < options.rounds; round++) {
    for (const theCase of cases) {
      const on = theCase.mode === "roundtrip" ? `round trip (${theCase.placement.name})` : "one way";
      const what = `${bytesText(theCase.size)} ${on}`;
      for (const [contender, command] of commands) {
        if (out.has(`${contender} ${what}`)) continue;
        progress(`round ${round + 1} of ${options.rounds}: ${what}, ${contender}`);
        try {
          const result = await measure(command, jobOf(theCase, options.warmMillis, options.runMillis));
          samples.push({ contender, case: theCase, result });
        } catch (error) {
          out.add(`${contender} ${what}`);
          failed.push({ contender, reason: `${what}: ${textOf(error)}` });
        }
      }
    }
  }
  progress("");
  return samples;
}

function printText(head: object, list: readonly string[], results: Results, reached: readonly Goal[]): void {
  console.log(headLine(head));
  console.log(list.join("\n"));
  if (results.throughput.length > 0) {
    console.log(`\nOne way, whole messages as the receiver counts them; a ratio above 1 is faster\n`);
    console.log(throughputTable(results));
  }
  if (results.roundTrip.length > 0) {
    console.log(`\nRound trip, as the sender sees it; a ratio below 1 is faster\n`);
    console.log(roundTripTable(results));
  }
  console.log(`\nGoals, as ratios within this run\n`);
  console.log(goalsTable(reached));
}

async function main(): Promise<number> {
  const options = optionsOrEnd("bench", HELP, parseOptions);
  const folder = mkdtempSync(join(tmpdir(), "zap-bench-"));
  const clean = (): void => rmSync(folder, { recursive: true, force: true });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      killAll();
      clean();
      process.exit(130);
    });
  }
  try {
    const { rounds, runMillis } = options;
    const head = { ...circumstances(), rounds, runMillis };
    const skipped: Trouble[] = [];
    const failed: Trouble[] = [];
    const cases: Case[] = options.sizes.map((size) => ({ mode: "throughput", size }));
    for (const size of options.roundTripSizes) {
      for (const placement of placements()) cases.push({ mode: "roundtrip", size, placement });
    }
    const commands = await prepareAll(options.contenders, folder, skipped, failed);
    const samples = await play(cases, commands, options, failed);
    const results = summarize(
      cases,
      CONTENDERS.map(({ name }) => name),
      samples,
    );
    const reached = goals(cases, results);
    if (options.json) {
      console.log(JSON.stringify({ ...head, ...results, goals: reached, skipped, failed }, null, 2));
    } else {
      const note = (name: string): string => {
        const skip = skipped.find(({ contender }) => contender === name);
        if (skip !== undefined) return ` (skipped: ${skip.reason})`;
        return failed.some(({ contender }) => contender === name) ? " (FAILED, see the end)" : "";
      };
      const list = options.contenders.map(({ name, what }) => `  ${name.padEnd(10)}${what}${note(name)}`);
      printText(head, list, results, reached);
    }
    for (const { contender, reason } of failed) console.error(`\nfailed: ${contender}: ${reason}`);
    return failed.length === 0 ? 0 : 1;
  } finally {
    clean();
  }
}

process.exit(await main());
