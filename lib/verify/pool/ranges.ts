/** Cuts a slice into ranges that take about the same time each, however uneven its items are. */
import { itemNanos, type Cost } from "./cost.ts";
import type { Rows } from "../rows.ts";

/**
 * The first item of each range, and after them `count`. Estimates say how long a range is: at most `cost.rangeMicros`, and so short that each
 * worker gets one; only an item that takes longer by itself is a longer one, alone or behind a few short ones. `nanos`: what all items take together.
 */
export function rangeStarts(rows: Rows, count: number, nanos: number, cost: Cost, workers: number): number[] {
  const most = cost.rangeMicros * 1_000;
  let ranges = Math.max(Math.min(workers, count), Math.ceil(nanos / most));
  let rest = nanos;
  let sum = 0;
  const starts = [0];
  for (let item = 0; item < count; item++) {
    const own = itemNanos(rows, item, cost);
    // To the nearer side of the fair share of what is left.
    if (sum > 0 && (sum + own / 2 > rest / ranges || sum + own > most)) {
      starts.push(item);
      rest -= sum;
      ranges = Math.max(1, ranges - 1);
      sum = 0;
    }
    sum += own;
  }
  starts.push(count);
  return starts;
}
