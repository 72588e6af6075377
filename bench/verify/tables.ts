/** From what was measured to rows, goals and tables. */
import type { Goal } from "../goals.ts";
import { number, ratioText, spread, table } from "../report.ts";
import { CASES } from "./cases.ts";
import type { KernelContender, KernelRates } from "./kernel.ts";
import type { Measured, Rate } from "./measure.ts";

/** To be reached of the plain call's rate by one core, and by two. */
const CORE_LEAST = 0.95;
const TWO_CORES_LEAST = 1.8;
const BLS_LEAST = 2;
const STRETCH_MOST_MILLIS = 10;

export interface Row {
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
export interface Single {
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

export function rowsOf(name: string, cores: number, measured: Measured): Row[] {
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

export function singleOf(name: string, cores: number, measured: Measured): Single {
  return {
    name,
    cores,
    oneMicros: median(measured.oneMicros),
    plainMicros: median(measured.plainMicros),
    workedMillis: Math.max(...measured.workedMillis),
    passedMillis: Math.max(...measured.passedMillis),
  };
}

export function goalsOf(names: readonly string[], rows: readonly Row[], singles: readonly Single[]): Goal[] {
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

export function ratesTable(rows: readonly Row[]): string {
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

export function singlesTable(singles: readonly Single[]): string {
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

const KERNELS: Readonly<Record<KernelContender, string>> = {
  "node:crypto": "node:crypto",
  five: "the kernel, five limbs of 51 bits",
  ten: "the kernel, ten limbs of 25.5 bits, as on a GPU",
};

export function kernelTable(rates: KernelRates): string {
  const cells = (Object.keys(KERNELS) as KernelContender[]).map((name) => {
    const ratio = median(rates[name].map((rate, round) => rate / rates["node:crypto"][round]!));
    const middle = median(rates[name]);
    return [KERNELS[name], number(middle, 0), ratioText(ratio), spread(rates[name], middle)];
  });
  return table(["ed25519 in C, on one core", "per second", "to node:crypto", "spread"], cells, 1, 0);
}
