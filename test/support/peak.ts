/** How much memory another process has needed at the most. */
import { readFileSync } from "node:fs";

/**
 * Watches a child until it ends. On Linux its own high-water mark, read again and again: what the system reports at the end
 * (`maxRSS`) starts at the resident set of whoever started the child. Elsewhere that is what there is.
 */
export class PeakMemory {
  private readonly child: Bun.Subprocess;
  private readonly timer: Timer | null = null;
  private peak = 0;

  constructor(child: Bun.Subprocess) {
    this.child = child;
    if (process.platform !== "linux") return;
    this.look();
    this.timer = setInterval(() => this.look(), 5);
    void child.exited.then(() => clearInterval(this.timer!));
  }

  /** Bytes, once the child has ended. Throws where nothing was seen. */
  bytes(): number {
    const peak = this.timer === null ? (this.child.resourceUsage()?.maxRSS ?? 0) : this.peak;
    if (peak === 0) throw new Error("nothing was seen of the child's memory");
    return peak;
  }

  /** `VmHWM` of the process: the largest resident set since it started its program. It never sinks, so the last look counts. */
  private look(): void {
    let status: string;
    try {
      status = readFileSync(`/proc/${this.child.pid}/status`, "utf8");
    } catch {
      return;
    }
    // A process that has ended and was not waited for yet has no such line.
    const kib = Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0);
    this.peak = Math.max(this.peak, kib * 1024);
  }
}
