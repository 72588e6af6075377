/**
 * Buffers that were never released, found by the collector. Watching each buffer would cost more than handing it out, so those of one
 * short span of time share an epoch: the collector tells when the last of them is gone, and the epoch's count how many of
 * them were not released. In debug mode each buffer has an epoch of its own, with the stack that asked for it.
 */
const BUFFERS_PER_EPOCH = 256;
const EPOCH_MILLIS = 1_000;

/** Memory that is lost to its pool for good. Nobody gets it again, because somebody may still see it. */
export interface LeakReport {
  /**
   * `collected`: buffers that nobody can release any more. `detached`: the `ArrayBuffer` of a buffer was transferred away, so
   * that whoever has it now sees the memory. `device`: the runtime failed to fence or to free it, with `error`.
   */
  readonly cause: "collected" | "detached" | "device";
  /** Buffers of the report, 0 where whole regions are meant. */
  readonly buffers: number;
  readonly bytes: number;
  /** Where the buffer was asked for; known in debug mode alone. */
  readonly stack: string | null;
  readonly error: unknown;
}

/** How many buffers of an epoch are out; outlives the epoch, to be read when that is collected. */
interface EpochCount {
  readonly leaks: Leaks;
  readonly stack: string | null;
  buffers: number;
  bytes: number;
}

/** What buffers of one span of time share. Nothing else may keep it for long. */
export class Epoch {
  readonly count: EpochCount;
  /** Buffers that may still join. */
  places: number;

  constructor(leaks: Leaks, places: number, stack: string | null) {
    this.count = { leaks, stack, buffers: 0, bytes: 0 };
    this.places = places;
  }
}

// Of the module and not of a pool: a pool that is dropped together with its buffers would take its registry along, unheard.
const registry = new FinalizationRegistry<EpochCount>((count) => {
  if (count.buffers > 0) count.leaks.collected(count.buffers, count.bytes, count.stack);
});

export class Leaks {
  /** Buffers that were collected without a release, and their bytes. */
  buffers = 0;
  bytes = 0;
  private epoch: Epoch | null = null;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private pending: LeakReport[] = [];
  private readonly onReport: (report: LeakReport) => void;
  private readonly onLeak: () => void;

  /** `onLeak` is called at once, for the pool's own sake; `onReport` a little later, with what came together. */
  constructor(onReport: (report: LeakReport) => void, onLeak: () => void) {
    this.onReport = onReport;
    this.onLeak = onLeak;
  }

  /** The epoch that the next buffer belongs to; it has a place. */
  join(): Epoch {
    const { epoch } = this;
    if (epoch === null || epoch.places === 0) return this.begin();
    epoch.places--;
    return epoch;
  }

  /** An epoch for one buffer. */
  alone(stack: string | null): Epoch {
    const epoch = new Epoch(this, 0, stack);
    registry.register(epoch, epoch.count);
    return epoch;
  }

  /** Lets go of the current epoch, so that the collector may find that all its buffers are gone. */
  turn(): void {
    this.epoch = null;
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  collected(buffers: number, bytes: number, stack: string | null): void {
    this.buffers += buffers;
    this.bytes += bytes;
    this.report({ cause: "collected", buffers, bytes, stack, error: null });
    this.onLeak();
  }

  /** Reports what is lost, together with what else is found in this turn of the event loop. */
  report(report: LeakReport): void {
    if (this.pending.length === 0) setImmediate(() => this.flush());
    const same = (other: LeakReport): boolean =>
      other.cause === report.cause && other.error === report.error && other.stack === null;
    const at = report.stack === null ? this.pending.findIndex(same) : -1;
    if (at === -1) this.pending.push(report);
    else this.pending[at] = sum(this.pending[at]!, report);
  }

  private begin(): Epoch {
    const epoch = new Epoch(this, BUFFERS_PER_EPOCH - 1, null);
    registry.register(epoch, epoch.count);
    this.epoch = epoch;
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.turn();
    }, EPOCH_MILLIS).unref();
    return epoch;
  }

  private flush(): void {
    const reports = this.pending;
    this.pending = [];
    for (const report of reports) this.onReport(report);
  }
}

function sum(a: LeakReport, b: LeakReport): LeakReport {
  return { ...a, buffers: a.buffers + b.buffers, bytes: a.bytes + b.bytes };
}

/** A report in one sentence. */
export function leakText({ cause, buffers, bytes, error }: LeakReport): string {
  const lost = `${bytes} bytes of the pool are lost`;
  const texts = {
    collected: `${buffers === 1 ? "1 buffer was" : `${buffers} buffers were`} never released; ${lost}`,
    detached: `memory of a buffer was transferred away; ${lost}`,
    device: `the device failed: ${error instanceof Error ? error.message : String(error)}; ${lost}`,
  };
  return texts[cause];
}

/** What happens to reports when nobody asked for them: a warning of the process. */
export function warnOfLeak(report: LeakReport): void {
  const { cause, stack } = report;
  process.emitWarning(leakText(report), {
    type: "ZapPoolWarning",
    code: `ZAP_POOL_${cause.toUpperCase()}`,
    ...(stack === null ? {} : { detail: stack }),
  });
}
