/** What the library is meant to reach, as ratios within one run. */
import { YARDSTICK } from "./contenders.ts";
import { bytesText } from "./report.ts";
import type { Case, Results } from "./results.ts";

export interface Goal {
  readonly what: string;
  /** `at least` or `at most`, and the number. */
  readonly needed: string;
  /** Null where one side was not measured. */
  readonly value: number | null;
  readonly reached: boolean | null;
}

const THROUGHPUT_MIN = 0.9;
const ROUND_TRIP_MAX = 1.2;
/** In messages per second at `SMALL` bytes. */
const TIMES = { ws: 8, grpc: 30 } as const;
const SMALL = 256;

export function goals(cases: readonly Case[], results: Results): Goal[] {
  const found: Goal[] = [];
  const add = (what: string, kind: "at least" | "at most", limit: number, value: number | null): void => {
    const reached = value === null ? null : kind === "at least" ? value >= limit : value <= limit;
    found.push({ what, needed: `${kind} ${limit}`, value, reached });
  };
  const oneWay = results.throughput.filter(({ contender }) => contender === "zap");
  const roundTrip = results.roundTrip.filter(({ contender }) => contender === "zap");
  for (const one of cases) {
    const size = bytesText(one.size);
    if (one.mode === "throughput") {
      const row = oneWay.find((row) => row.size === one.size);
      add(`${size} one way, to ${YARDSTICK}`, "at least", THROUGHPUT_MIN, row?.ratio ?? null);
    } else {
      const { name } = one.placement;
      const row = roundTrip.find((row) => row.size === one.size && row.placement === name);
      add(`${size} round trip, ${name}, to ${YARDSTICK}`, "at most", ROUND_TRIP_MAX, row?.ratio ?? null);
    }
  }
  const rate = (name: string): number | undefined =>
    results.throughput.find(({ contender, size }) => contender === name && size === SMALL)?.messagesPerSecond;
  const ours = rate("zap");
  for (const [name, times] of Object.entries(TIMES)) {
    const theirs = rate(name);
    const value = ours === undefined || theirs === undefined ? null : ours / theirs;
    add(`${bytesText(SMALL)} one way, to ${name}`, "at least", times, value);
  }
  return found;
}
