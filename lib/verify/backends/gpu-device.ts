/** One CUDA device that verifies: its kernel, its stage, and batches through it, one slice at a time. */
import { ClosedError } from "../../errors/index.ts";
import type { DeviceMemory, HeaderSpan } from "../../memory/index.ts";
import type { PackedBatch } from "../contract.ts";
import { checkHeld, ReleasedError } from "../held.ts";
import { turns } from "../turns.ts";
import { borrowed, late, launch, mayStillRun, nameOf } from "./gpu-launch.ts";
import { ed25519Lengths } from "./gpu-lengths.ts";
import { checkSample, leastItems, sample, SAMPLES } from "./gpu-least.ts";
import type { Place } from "./gpu-place.ts";
import { Stage } from "./gpu-stage.ts";
import { abortable, isAborted } from "./gpu-waits.ts";

/** Items of one launch: enough for the largest GPUs of today, and soon over. */
const LAUNCH_ITEMS = 65_536;
/** A batch whose bytes are this much more than its items is not copied whole. */
const SPREAD_BYTES = 1_024;
const SPREAD_LEAST = 1024 * 1024;
/** The event loop gets its turn after so many milliseconds of copying. */
const TURN_MILLIS = 4;

/** A batch, where its codes go, and what ends it early. */
export interface Work {
  readonly batch: PackedBatch;
  readonly codes: Uint8Array;
  readonly signal: AbortSignal | undefined;
  /** How many bytes the batch had when it came. */
  readonly length: number;
}

export class VerifyDevice {
  readonly memory: DeviceMemory;
  readonly #stageBytes: number;
  readonly #cpuMicros: (() => number) | null;
  #stage: Stage | null = null;
  #leastItems = Infinity;
  #ready: Promise<void> | null = null;
  /** Whoever has the stage, and those who wait for it. */
  #turns: Promise<unknown> = Promise.resolve();
  #isReady = false;
  /** What the device failed with. */
  #fault: Error | null = null;
  /** A call into the driver, or a kernel, may never end. */
  #isLost = false;

  /**
   * `stageBytes`: room for the bytes of batches; 0 where they are all in place. `cpuMicros`: what the CPU takes for an item, to tell from how
   * many on the device is faster; null where nobody wants to know.
   */
  constructor(memory: DeviceMemory, stageBytes: number, cpuMicros: (() => number) | null) {
    this.memory = memory;
    this.#stageBytes = stageBytes;
    this.#cpuMicros = cpuMicros;
  }

  /** From so many items on it is faster than the CPU, as was measured when it became ready; Infinity where it never is, or was not measured. */
  get leastItems(): number {
    return this.#leastItems;
  }

  /** Whether the kernel is there, so that nothing has to be waited for. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** Waits until the driver has compiled the kernel. Rejects with what the device fails with; the next call tries again. */
  ready(): Promise<void> {
    if (this.#fault !== null) return Promise.reject(this.#fault);
    this.#ready ??= this.#load().catch((error: unknown) => {
      this.#ready = null;
      this.#isLost ||= mayStillRun(error);
      throw error;
    });
    return this.#ready;
  }

  async #load(): Promise<void> {
    // The driver may take longer to compile than any call may take.
    const deadline = performance.now() + 10 * this.memory.timeoutMillis;
    while (!this.#isLoaded()) {
      if (performance.now() > deadline)
        throw late(this.memory, "compile the kernel", 10 * this.memory.timeoutMillis);
      await Bun.sleep(2);
    }
    await this.#tryOut();
    this.#isLoaded();
    this.#stage ??= new Stage(this.memory, this.#stageBytes, LAUNCH_ITEMS);
    this.#isReady = true;
  }

  /** Throws where the device was let go of meanwhile, or somebody has closed its memory: no stage may be touched then. */
  #isLoaded(): boolean {
    if (this.#fault !== null) throw this.#fault;
    return this.memory.verifyLoad("ed25519");
  }

  /** A device that does not verify what is valid must verify nothing; and how long it takes decides what it gets. */
  async #tryOut(): Promise<void> {
    const { bytes } = sample(1);
    // The first launch is slower than those after it.
    const counts = this.#cpuMicros !== null ? [SAMPLES[0], ...SAMPLES] : [1];
    const { table, count: most } = sample(Math.max(...counts));
    const stage = new Stage(this.memory, bytes.length, most);
    const micros: number[] = [];
    await borrowed(stage, async () => {
      stage.rows(table, 0, most);
      await stage.fill(bytes, turns(TURN_MILLIS));
      for (const count of counts) {
        this.#isLoaded();
        const start = Bun.nanoseconds();
        checkSample(await launch(this.memory, stage, stage.spans(bytes.length, count)), nameOf(this.memory));
        micros.push((Bun.nanoseconds() - start) / 1_000);
      }
    });
    if (this.#cpuMicros !== null) this.#leastItems = leastItems(micros[1]!, micros[2]!, this.#cpuMicros());
  }

  /** Verifies a batch through the stage. Rejects with `AbortedError` soon after the signal fires, else with what the device fails with. */
  async verify(work: Work): Promise<void> {
    await abortable(this.ready(), work.signal);
    checkHeld(work.batch, work.length);
    const { bytes, count } = work.batch;
    const isSpread = bytes.length > Math.max(SPREAD_LEAST, count * SPREAD_BYTES);
    if (bytes.length <= this.#stageBytes && !isSpread) return this.#alone(work, () => this.#whole(work));
    for (let from = 0; from < count;) {
      let next = from;
      const start = from;
      await this.#alone(work, async () => {
        next = await this.#gathered(work, start);
      });
      from = next;
    }
  }

  /**
   * Verifies a batch whose bytes lie in this device's memory, which is lent at once, until the device has finished. Throws `ClosedError` or
   * `OwnerError` where the buffer cannot be lent.
   */
  verifyInPlace(work: Work, place: Place): Promise<void> {
    const idle = Promise.withResolvers<void>();
    place.buffer.lend(idle.promise);
    const end = (fault: Error | null) => {
      place.buffer.returned(fault);
      idle.resolve();
    };
    const done = this.#inPlace(work, place).then(
      () => end(null),
      (error: unknown) => {
        end(mayStillRun(error) ? (error as Error) : null);
        throw error;
      },
    );
    return abortable(done, work.signal);
  }

  /**
   * Lets go of the device when the batch that is on it has ended; those that wait reject. One that may not answer is left as it is: to wait for
   * it would hold up everything. Rejects where the driver fails.
   */
  async close(): Promise<void> {
    await this.#end();
    if (!this.#isLost) this.memory.close();
  }

  /** The same where the memory is somebody else's: it stays open, and the stage goes back to it, unless a kernel may still use that. */
  async leave(): Promise<void> {
    await this.#end();
    const stage = this.#stage;
    this.#stage = null;
    if (!this.#isLost) stage?.free();
  }

  /** Whoever comes from now on is refused. Resolves when the batch that is on the device has ended, and so has trying it out. */
  async #end(): Promise<void> {
    this.#isReady = false;
    this.#fault ??= new ClosedError(`${nameOf(this.memory)} was closed`);
    await this.#turns;
    await this.#ready?.catch(() => {});
  }

  async #inPlace(work: Work, { region, offset, length }: Place): Promise<void> {
    await this.ready();
    await this.#locked(() => this.#launches(work, length, { region, offset, length }));
  }

  /** The batch's bytes once, then its items in as many launches as it takes. */
  async #whole(work: Work): Promise<void> {
    checkHeld(work.batch, work.length);
    await this.#theStage.fill(work.batch.bytes, turns(TURN_MILLIS));
    await this.#launches(work, work.batch.bytes.length);
  }

  async #launches(work: Work, bytes: number, elsewhere?: HeaderSpan): Promise<void> {
    const { batch, codes, signal } = work;
    const stage = this.#theStage;
    for (let from = 0; from < batch.count && !isAborted(signal); from += LAUNCH_ITEMS) {
      const to = Math.min(batch.count, from + LAUNCH_ITEMS);
      // Bytes in place are lent: their holder may have let go of its view of them.
      checkHeld(batch, elsewhere === undefined ? work.length : batch.bytes.length);
      stage.rows(batch.table, from, to);
      const seen = await launch(this.memory, stage, stage.spans(bytes, to - from, elsewhere));
      if (!isAborted(signal)) codes.set(seen, from);
    }
  }

  /** As many items from `from` on as the stage has room for. Gives the first that is left. */
  async #gathered(work: Work, from: number): Promise<number> {
    const { batch, codes, signal } = work;
    checkHeld(work.batch, work.length);
    const stage = this.#theStage;
    const slice = await stage.gather(batch, from, ed25519Lengths, turns(TURN_MILLIS));
    checkHeld(work.batch, work.length);
    if (slice.to === from) return this.#large(work, from, slice.bytes);
    const seen = await launch(this.memory, stage, stage.spans(slice.bytes, slice.to - from));
    if (isAborted(signal)) return slice.to;
    codes.set(seen, from);
    for (const [at, code] of slice.known) codes[from + at] = code;
    return slice.to;
  }

  /** One item that is larger than the stage. */
  async #large(work: Work, at: number, bytes: number): Promise<number> {
    const { batch, codes, signal } = work;
    const stage = new Stage(this.memory, bytes, 1);
    await borrowed(stage, async () => {
      await stage.gather(batch, at, ed25519Lengths, turns(TURN_MILLIS));
      checkHeld(work.batch, work.length);
      const seen = await launch(this.memory, stage, stage.spans(bytes, 1));
      if (!isAborted(signal)) codes.set(seen, at);
    });
    return at + 1;
  }

  /** Runs `step` when its turn has come, alone; the caller gets away when the signal fires, the step goes on to its end. */
  #alone({ signal }: Work, step: () => Promise<void>): Promise<void> {
    return abortable(
      this.#locked(async () => {
        if (!isAborted(signal)) await step();
      }),
      signal,
    );
  }

  /** After a failure nobody gets a turn: the device is closed next, and its memory must not be touched any more. */
  #locked(step: () => Promise<void>): Promise<void> {
    const turn = this.#turns.then(() => {
      if (this.#fault !== null) throw this.#fault;
      return step();
    });
    this.#turns = turn.catch((error: unknown) => {
      // The caller's mistake, and not the device's.
      if (error instanceof ReleasedError) return;
      this.#fault ??= error as Error;
      this.#isLost ||= mayStillRun(error);
    });
    return turn;
  }

  get #theStage(): Stage {
    if (this.#stage === null) throw new ClosedError(`${nameOf(this.memory)} has no stage`);
    return this.#stage;
  }
}
