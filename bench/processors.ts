/** On which processors the two sides of a round trip run. */
import { readFileSync } from "node:fs";
import type { Job } from "./measure.ts";

export interface Placement {
  readonly name: "one core" | "two cores" | "free";
  readonly processors: Job["processors"];
}

/**
 * Left alone, the system puts the two processes on one processor or on two, as it happens, and a round trip takes several times
 * longer in one case than in the other. Where `taskset` is there, each case is measured by itself.
 */
export function placements(): Placement[] {
  const [first, second] = allowedProcessors();
  if (first === undefined || second === undefined || !Bun.which("taskset")) {
    return [{ name: "free", processors: null }];
  }
  return [
    { name: "one core", processors: { receive: first, send: first } },
    { name: "two cores", processors: { receive: first, send: second } },
  ];
}

/** The processors that Linux lets this process use; none elsewhere. */
export function allowedProcessors(): number[] {
  if (process.platform !== "linux") return [];
  const ranges = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "";
  return ranges.split(",").flatMap((range) => {
    const [from = NaN, to = from] = range.split("-").map(Number);
    return Array.from({ length: Math.max(0, to - from + 1) || 0 }, (_, index) => from + index);
  });
}
