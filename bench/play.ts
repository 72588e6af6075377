/** Every contender in turn, round after round. */
import type { Contender } from "./contenders.ts";
import { measure } from "./measure.ts";
import { bytesText } from "./report.ts";
import { type Case, type Sample, jobOf } from "./results.ts";

export interface Trouble {
  readonly contender: string;
  readonly reason: string;
}

/** Progress goes to standard error, and only where a person looks at it. */
export function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export async function prepareAll(
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
export async function play(
  cases: readonly Case[],
  commands: ReadonlyMap<string, readonly string[]>,
  options: { readonly rounds: number; readonly warmMillis: number; readonly runMillis: number },
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
