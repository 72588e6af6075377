/** From what the programs in the guest wrote to figures. No formatting here. */
import { median } from "../results.ts";
import type { Trouble } from "../play.ts";
import type { Measured } from "./bun-pair.ts";
import { bunCasesOf, casesOf, PINGPONG, PINGPONG_EVENTS, SEND_BW, type Cores, type Mode } from "./plan.ts";

/** Of one entrant in one case, over the rounds: microseconds for a round trip, else megabytes (10^6 bytes) a second. */
export interface Row {
  readonly mode: Mode;
  readonly bytes: number;
  readonly cores: Cores;
  readonly entrant: string;
  readonly value: number;
  readonly rounds: readonly number[];
  /** The median to that of the program that it is compared with; null where that has none. */
  readonly ratio: number | null;
  /** The best round, and its ratio to that program's best: what is left where others keep the host's processors busy. */
  readonly best: number;
  readonly bestRatio: number | null;
  /** Bun's alone. Received bytes that were copied, both ends, for a message; and whether the sender copied it. */
  readonly copied: { readonly received: number; readonly sent: boolean } | null;
}

const MIB = 2 ** 20;
/** perftest's MB are MiB. */
const PERFTEST_MB = MIB / 1e6;

/** The number that a program's output gives for a case; null where there is none. */
export function figureOf(entrant: string, mode: Mode, bytes: number, text: string): number | null {
  const number = (match: string | undefined): number | null => {
    const value = Number(match);
    return match !== undefined && value > 0 && Number.isFinite(value) ? value : null;
  };
  if (entrant === PINGPONG || entrant === PINGPONG_EVENTS) {
    const micros = number(/ = (\S+) usec\/iter/.exec(text)?.[1]);
    return micros !== null && mode === "thereAndBack" ? (2 * bytes) / micros : micros;
  }
  // The last one, where perftest ran twice.
  const columns = [
    ...text.matchAll(new RegExp(`^ *${bytes}\\s+\\d+\\s+(\\S+)\\s+(\\S+)\\s+(\\S+)`, "gm")),
  ].at(-1);
  if (entrant === "ib_send_lat") {
    const half = number(columns?.[3]);
    return half === null ? null : 2 * half;
  }
  if (entrant.startsWith("ib_")) {
    const mebibytes = number(columns?.[2]);
    return mebibytes === null ? null : mebibytes * PERFTEST_MB;
  }
  const line = /^\{.*\}$/m.exec(text)?.[0];
  if (line === undefined) return null;
  const { micros, megabytes } = JSON.parse(line) as { micros?: number[]; megabytes?: number[] };
  if (mode === "oneway") return megabytes?.[0] ?? null;
  const trip = micros?.[0] ?? null;
  return trip !== null && mode === "thereAndBack" ? (2 * bytes) / trip : trip;
}

interface Group {
  readonly mode: Mode;
  readonly bytes: number;
  readonly cores: Cores;
  readonly entrant: string;
  readonly rounds: number[];
  copied: Row["copied"];
}

/** Everything that was measured, in the order of the plan; what gave no figure is in `failed`. */
export function readOutput(output: string, quick: boolean, failed: Trouble[]): Row[] {
  const cases = casesOf(quick);
  const groups = new Map<string, Group>();
  const add = (
    one: { readonly mode: Mode; readonly bytes: number },
    cores: Cores,
    entrant: string,
    value: number,
  ): Group => {
    const key = `${one.mode} ${one.bytes} ${cores} ${entrant}`;
    const group = groups.get(key) ?? {
      ...{ mode: one.mode, bytes: one.bytes, cores, entrant, rounds: [], copied: null },
    };
    groups.set(key, group);
    group.rounds.push(value);
    return group;
  };
  for (const part of output.split(/^@ /m).slice(1)) {
    const end = part.indexOf("\n");
    const [first = "", ...words] = part.slice(0, end).trim().split(" ");
    const name = words.join(" ");
    const text = part.slice(end + 1);
    if (first === "bun") {
      readBun(text, name as Cores, quick, add, failed);
      continue;
    }
    const one = cases[Number(first)]!;
    const value = figureOf(name, one.mode, one.bytes, text);
    if (value !== null) add(one, one.cores, name, value);
    else
      failed.push({
        contender: name,
        reason: `${one.mode} of ${one.bytes} bytes: ${text.trim().slice(-300)}`,
      });
  }
  return [...groups.values()].map((group) => {
    const value = median(group.rounds);
    const base = groups.get(`${group.mode} ${group.bytes} ${group.cores} ${baseOf(group)}`);
    const best = bestOf(group);
    return {
      ...{ ...group, value, best },
      ratio: base === undefined ? null : value / median(base.rounds),
      bestRatio: base === undefined ? null : best / bestOf(base),
    };
  });
}

const bestOf = ({ mode, rounds }: Group): number =>
  mode === "roundtrip" ? Math.min(...rounds) : Math.max(...rounds);

function readBun(
  text: string,
  cores: Cores,
  quick: boolean,
  add: (one: { mode: Mode; bytes: number }, cores: Cores, entrant: string, value: number) => Group,
  failed: Trouble[],
): void {
  const lines = text.split("\n").filter((line) => line.startsWith("{"));
  const wanted = bunCasesOf(quick).length;
  if (lines.length !== wanted)
    failed.push({
      ...{
        contender: "bun",
        reason: `${lines.length} of ${wanted} figures, ${cores}: ${text.trim().slice(0, 1_000)}`,
      },
    });
  // The first is there to warm up.
  for (const line of lines.slice(1)) {
    const { mode, bytes, count, wait, memory, value, bytesCopied, sendCopied } = JSON.parse(line) as Measured;
    const entrant = wait === "poll" ? "bun-poll" : memory === "plain" ? "bun-plain" : "bun";
    const large = mode === "roundtrip" && bytes >= 65_536;
    const group = add(
      { mode: large ? "thereAndBack" : mode, bytes },
      cores,
      entrant,
      large ? (2 * bytes) / value : value,
    );
    group.copied = { received: bytesCopied / count, sent: sendCopied };
  }
}

/** What polls is compared with what polls, what sleeps with what sleeps. */
function baseOf({ mode, cores, entrant }: Group): string {
  const polls = ["c-drive", "c-poll", "c-spin", "bun-poll", PINGPONG, "ib_send_lat"].includes(entrant);
  if (mode === "oneway") return cores === "two" ? SEND_BW : "";
  if (mode === "thereAndBack") return cores === "one" ? PINGPONG_EVENTS : PINGPONG;
  return polls && cores === "two" ? PINGPONG : PINGPONG_EVENTS;
}
