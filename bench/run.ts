/**
 * The benchmark: messages between two processes over loopback, one contender after the other in every round.
 *
 * What lives here: `contenders.ts` (who), `peers/` (one file each), `child.ts` (a process of a measurement), `measure.ts` (one
 * measurement), `play.ts` (all of them), `results.ts`, `goals.ts` and `report.ts` (what came of it), and benchmarks of their own, `pool.ts`, `receive/` and
 * `dpdk/`, which share `values.ts` (options) and `circumstances.ts`. May import: the public entry of the library, in
 * `peers/` alone. Start here.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { circumstances, headLine } from "./circumstances.ts";
import { CONTENDERS } from "./contenders.ts";
import { type Goal, goals } from "./goals.ts";
import { killAll } from "./measure.ts";
import { HELP, parseOptions } from "./options.ts";
import { type Trouble, play, prepareAll } from "./play.ts";
import { placements } from "./processors.ts";
import { goalsTable, roundTripTable, throughputTable } from "./report.ts";
import { type Case, type Results, summarize } from "./results.ts";
import { optionsOrEnd } from "./values.ts";

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
