/** What was measured: the rounds, their medians, and how they compare. No formatting here. */
import type { RoundTrip, Throughput } from "./clock.ts";
import { YARDSTICK } from "./contenders.ts";
import type { Job } from "./measure.ts";
import type { Placement } from "./processors.ts";

/** One thing that every contender does in every round. */
export type Case =
  | { readonly mode: "throughput"; readonly size: number; readonly placement?: Placement }
  | { readonly mode: "roundtrip"; readonly size: number; readonly placement: Placement };

export interface ThroughputRow {
  readonly contender: string;
  readonly size: number;
  readonly messagesPerSecond: number;
  readonly megabytesPerSecond: number;
  /** To the yardstick; more is better. Null where that was not measured. */
  readonly ratio: number | null;
  /** Messages per second of each round. */
  readonly rounds: readonly number[];
}

export interface RoundTripRow {
  readonly contender: string;
  readonly size: number;
  readonly placement: Placement["name"];
  readonly medianMicros: number;
  readonly p99Micros: number;
  /** Of the medians, to the yardstick; less is better. Null where that was not measured. */
  readonly ratio: number | null;
  /** The median of each round, microseconds. */
  readonly rounds: readonly number[];
}

export interface Results {
  readonly throughput: readonly ThroughputRow[];
  readonly roundTrip: readonly RoundTripRow[];
}

/** One finished measurement. */
export interface Sample {
  readonly contender: string;
  readonly case: Case;
  readonly result: Throughput | RoundTrip;
}

export function jobOf(theCase: Case, warmMillis: number, runMillis: number): Job {
  const { mode, size } = theCase;
  const processors = theCase.placement?.processors ?? null;
  return { mode, size, warmMillis, runMillis, processors };
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}

/** The medians of each case, and ratios to the yardstick, in the order of `cases` and `contenders`; what has no sample has no row. */
export function summarize(
  cases: readonly Case[],
  contenders: readonly string[],
  samples: readonly Sample[],
  yardstickName: string = YARDSTICK,
): Results {
  const throughput: ThroughputRow[] = [];
  const roundTrip: RoundTripRow[] = [];
  for (const theCase of cases) {
    const of = (contender: string) =>
      samples.filter((one) => one.case === theCase && one.contender === contender);
    const yardstick = of(yardstickName);
    for (const contender of contenders) {
      const mine = of(contender);
      if (mine.length === 0) continue;
      const { size } = theCase;
      if (theCase.mode === "throughput") {
        const rounds = mine.map(rate);
        const messagesPerSecond = median(rounds);
        const ratio = yardstick.length === 0 ? null : messagesPerSecond / median(yardstick.map(rate));
        const megabytesPerSecond = (messagesPerSecond * size) / 1e6;
        throughput.push({ contender, size, messagesPerSecond, megabytesPerSecond, ratio, rounds });
      } else {
        const rounds = mine.map((one) => (one.result as RoundTrip).medianMicros);
        const medianMicros = median(rounds);
        const p99Micros = median(mine.map((one) => (one.result as RoundTrip).p99Micros));
        const base = yardstick.map((one) => (one.result as RoundTrip).medianMicros);
        const ratio = base.length === 0 ? null : medianMicros / median(base);
        const placement = theCase.placement.name;
        roundTrip.push({ contender, size, placement, medianMicros, p99Micros, ratio, rounds });
      }
    }
  }
  return { throughput, roundTrip };
}

function rate(sample: Sample): number {
  const { messages, millis } = sample.result as Throughput;
  return (messages / millis) * 1_000;
}
