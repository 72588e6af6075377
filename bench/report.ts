/** The tables that a person reads. */
import { YARDSTICK } from "./contenders.ts";
import type { Goal } from "./goals.ts";
import type { Results } from "./results.ts";

export function bytesText(bytes: number): string {
  if (bytes % 1_048_576 === 0) return `${bytes / 1_048_576} MiB`;
  if (bytes % 1_024 === 0) return `${bytes / 1_024} KiB`;
  return `${bytes} B`;
}

export function number(value: number, digits: number): string {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function ratioText(ratio: number | null): string {
  return ratio === null ? "-" : ratio.toFixed(ratio < 0.1 ? 3 : 2);
}

/** How far the rounds lie apart, against their middle. */
export function spread(rounds: readonly number[], middle: number): string {
  return `${Math.round(((Math.max(...rounds) - Math.min(...rounds)) / middle) * 100)} %`;
}

/** Aligned columns, numbers to the right; an empty line where the group (the first `grouped` columns) changes. */
export function table(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  left: number,
  grouped: number,
): string {
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => row[column]!.length)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => (column < left ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
      .join("  ")
      .trimEnd();
  const lines = [line(head), widths.map((width) => "-".repeat(width)).join("  ")];
  let group = rows[0]?.slice(0, grouped).join();
  for (const row of rows) {
    const next = row.slice(0, grouped).join();
    if (next !== group) lines.push("");
    group = next;
    lines.push(line(row));
  }
  return lines.join("\n");
}

export function throughputTable({ throughput }: Results, yardstick: string = YARDSTICK): string {
  const rows = throughput.map((row) => [
    bytesText(row.size),
    row.contender,
    number(row.messagesPerSecond, 0),
    number(row.megabytesPerSecond, 1),
    ratioText(row.ratio),
    spread(row.rounds, row.messagesPerSecond),
  ]);
  return table(["size", "contender", "messages/s", "MB/s", `to ${yardstick}`, "spread"], rows, 2, 1);
}

export function roundTripTable({ roundTrip }: Results, yardstick: string = YARDSTICK): string {
  const rows = roundTrip.map((row) => [
    bytesText(row.size),
    row.placement,
    row.contender,
    number(row.medianMicros, 1),
    number(row.p99Micros, 1),
    ratioText(row.ratio),
    spread(row.rounds, row.medianMicros),
  ]);
  const head = ["size", "on", "contender", "median us", "p99 us", `to ${yardstick}`, "spread"];
  return table(head, rows, 3, 2);
}

export function goalsTable(goals: readonly Goal[]): string {
  const rows = goals.map(({ what, needed, value, reached }) => [
    what,
    needed,
    value === null ? "-" : value.toFixed(2),
    reached === null ? "not measured" : reached ? "reached" : "not reached",
  ]);
  return table(["goal of zap", "needed", "here", ""], rows, 2, 0);
}
