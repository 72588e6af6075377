/**
 * The GPU: Ed25519 by a CUDA kernel, on batches in unified memory. The kernel's source is that of `shim/kernels/ed25519`, which runs on the CPU
 * as well, so its verdicts are those of every other backend.
 *
 * What lives beside it: `gpu-device.ts` (a device and its batches), `gpu-launch.ts` (one launch), `gpu-least.ts` (what is too small for it), `gpu-stage.ts` (what
 * batches are copied to), `gpu-place.ts` (batches that need no copy), `gpu-waits.ts` (signals), `gpu-settings.ts`.
 */
import { AbortedError, ClosedError, NotAvailableError, OwnerError, ZapError } from "../../errors/index.ts";
import { locateLibrary, platformHere, type Platform } from "../../ffi/index.ts";
import { openDeviceMemory, type DeviceMemory } from "../../memory/index.ts";
import type { Env } from "../../settings/index.ts";
import type { Backend, Job, Scheme } from "../contract.ts";
import { checkHeld, ReleasedError } from "../held.ts";
import { poolSettings } from "../pool/index.ts";
import { VerifyDevice } from "./gpu-device.ts";
import { cpuMicros } from "./gpu-least.ts";
import { placeOf, type Place } from "./gpu-place.ts";
import { gpuSettings, leastItemsIn, type GpuSettings } from "./gpu-settings.ts";

const LIBCUDA = "libcuda.so.1";
/** A device that failed is left alone for as long. */
const PAUSE_MILLIS = 30_000;
/** As long as nothing was measured, a batch of so many is worth opening the device, in the background. */
const OPENING_ITEMS = 512;

export interface GpuOptions {
  readonly env?: Env | undefined;
  /** The folder that stands for `/`, and the platform: where the driver and the shim are looked for. Default: this host. */
  readonly root?: string | undefined;
  readonly platform?: Platform | undefined;
}

/**
 * Batches that are large enough go to the device, the others to the backend beside it, `cpu`; so do those that come while the driver still
 * compiles the kernel, and those that the device fails with, of which `onDeviceError` is told. A job that is `forced` goes to the device, whatever its
 * size, or rejects.
 */
export class GpuBackend implements Backend {
  readonly name = "cuda";
  readonly #cpu: Backend;
  readonly #env: Env;
  readonly #root: string;
  readonly #platform: Platform;
  #settings: GpuSettings | null = null;
  #runtime: string | null | undefined;
  #opening: Promise<VerifyDevice> | null = null;
  #device: VerifyDevice | null = null;
  /** Those of whose memory batches were verified in place. */
  readonly #others = new WeakMap<DeviceMemory, VerifyDevice>();
  #failure: { readonly text: string; readonly at: number } | null = null;

  /** Opens nothing. */
  constructor(cpu: Backend, { env = process.env, root = "/", platform = platformHere() }: GpuOptions = {}) {
    this.#cpu = cpu;
    this.#env = env;
    this.#root = root;
    this.#platform = platform;
  }

  serves(scheme: Scheme): true | string {
    if (scheme !== "ed25519") return `no CUDA kernel verifies ${scheme} yet, only ed25519`;
    const { platform } = this.#platform;
    if (platform !== "linux") return `CUDA is for Linux, not ${platform}`;
    if (this.#library() === null) return `${LIBCUDA} is not here: install the NVIDIA driver`;
    if (this.#failure === null || performance.now() - this.#failure.at > PAUSE_MILLIS) return true;
    return `${this.#failure.text} (tried again after ${PAUSE_MILLIS / 1000} s)`;
  }

  /** Opens the device and has the kernel compiled, which may take seconds, so that no batch has to. Rejects as a forced job would. */
  async warm(): Promise<void> {
    const served = this.serves("ed25519");
    if (served !== true) throw new NotAvailableError(served);
    try {
      await this.#guarded(
        () => this.#open(),
        (device) => device.ready(),
      );
    } catch (error) {
      throw error instanceof DeviceFailure ? error.failure : error;
    }
  }

  async run(job: Job): Promise<void> {
    const forced = job.forced === true;
    const { length } = job.batch.bytes;
    const settings = (this.#settings ??= gpuSettings(this.#env));
    if (job.signal?.aborted === true) throw new AbortedError("batchVerify", job.signal.reason);
    const served = this.serves(job.scheme);
    if (served !== true && forced) throw new NotAvailableError(`cuda: ${served}`);
    // A buffer that was released is its holder's mistake, and not the device's.
    const place = served === true ? placeOf(job.batch.bytes) : null;
    if (served !== true || (!forced && job.batch.count < this.#leastFor(place, settings)))
      return this.#cpu.run(job);
    try {
      if (await this.#onDevice(job, place, forced)) return;
    } catch (error) {
      if (!(error instanceof DeviceFailure)) throw error;
      if (forced) throw error.failure;
      tell(job, error.failure);
    }
    // The device may have had a copy of its own; the CPU reads the caller's bytes, which may be gone by now, up to the end.
    checkHeld(job.batch, length);
    await this.#cpu.run(job);
    checkHeld(job.batch, length);
  }

  /** From how many items on the device gets a batch; null as long as that was neither set nor measured. */
  get leastItems(): number | null {
    // Whoever only asks is not told of a setting that cannot be used: that is for those who verify.
    const set = this.#settings?.leastItems ?? leastItemsIn(this.#env);
    return set ?? (this.#device?.isReady === true ? this.#device.leastItems : null);
  }

  #leastFor(place: Place | null, { leastItems }: GpuSettings): number {
    const device = place === null ? this.#device : this.#others.get(place.device);
    return leastItems ?? (device?.isReady === true ? device.leastItems : OPENING_ITEMS);
  }

  /**
   * Lets go of the device when the batch that is on it has ended, also of one that is just being opened; it is opened again with the next batch.
   * Rejects where the driver fails to close it.
   */
  async close(): Promise<void> {
    const device = this.#device;
    const opening = this.#opening;
    this.#device = null;
    this.#opening = null;
    // Who opens it closes it at once, and is told what comes of that.
    await opening?.catch(() => {});
    await device?.close();
  }

  /** False where the device is not ready and nobody insists on it. */
  async #onDevice(job: Job, place: Place | null, forced: boolean): Promise<boolean> {
    const { batch, codes, signal } = job;
    const device = place === null ? this.#device : this.#otherDevice(place.device);
    const open = async () => device ?? this.#open();
    if (!forced && device?.isReady !== true) {
      // Not waited for: this batch is the CPU's.
      this.#guarded(open, (opened) => opened.ready()).catch((error: unknown) => {
        tell(job, error instanceof DeviceFailure ? error.failure : failureOf(error));
      });
      return false;
    }
    const work = { batch, codes, signal, length: batch.bytes.length };
    if (place !== null && device !== null) {
      // At once, before its holder can release it.
      const done = device.verifyInPlace(work, place);
      await this.#guarded(open, () => done);
    } else {
      await this.#guarded(open, (opened) => opened.verify(work));
    }
    return true;
  }

  /** Rejects with `DeviceFailure` where the device is to blame; then it is let go of, and left alone for a while. */
  async #guarded(
    open: () => Promise<VerifyDevice>,
    use: (device: VerifyDevice) => Promise<void>,
  ): Promise<void> {
    let device: VerifyDevice | null = null;
    try {
      device = await open();
      await use(device);
    } catch (error) {
      if (error instanceof AbortedError || error instanceof ReleasedError || error instanceof OwnerError)
        throw error;
      // Its holder has closed it: no device is to blame, and none is left alone for it.
      if (error instanceof ClosedError) {
        if (device !== null) this.#forget(device);
        throw new DeviceFailure(error);
      }
      throw new DeviceFailure(this.#failed(error, device));
    }
  }

  #otherDevice(memory: DeviceMemory): VerifyDevice {
    const known = this.#others.get(memory);
    if (known !== undefined) return known;
    const device = new VerifyDevice(memory, 0, this.#timing());
    this.#others.set(memory, device);
    return device;
  }

  /** What a device is compared with, unless the operator has decided. */
  #timing(): (() => number) | null {
    const { leastItems } = (this.#settings ??= gpuSettings(this.#env));
    return leastItems === null ? () => cpuMicros(poolSettings(this.#env).workers) : null;
  }

  #open(): Promise<VerifyDevice> {
    if (this.#device !== null) return Promise.resolve(this.#device);
    if (this.#opening !== null) return this.#opening;
    const isWanted = (): boolean => this.#opening === opening;
    const opening: Promise<VerifyDevice> = this.#reallyOpen().then(
      async (device) => {
        if (!isWanted()) {
          await device.close();
          throw new ClosedError("cuda was closed while its device was opened");
        }
        this.#opening = null;
        return (this.#device = device);
      },
      (error: unknown) => {
        if (isWanted()) this.#opening = null;
        throw error;
      },
    );
    return (this.#opening = opening);
  }

  async #reallyOpen(): Promise<VerifyDevice> {
    const runtime = this.#library();
    if (runtime === null) throw new NotAvailableError(`${LIBCUDA} is not here: install the NVIDIA driver`);
    const { stageBytes } = (this.#settings ??= gpuSettings(this.#env));
    const memory = await openDeviceMemory({ kind: "cuda", runtime }, this.#env, this.#platform);
    if (!memory.device.flags.has("verify")) {
      memory.close();
      throw new NotAvailableError(`${memory.device.name} does not run the kernels of this library`);
    }
    return new VerifyDevice(memory, stageBytes, this.#timing());
  }

  #failed(error: unknown, device: VerifyDevice | null): ZapError {
    const failure = failureOf(error);
    this.#failure = { text: failure.message, at: performance.now() };
    if (device !== null) this.#forget(device);
    return failure;
  }

  #forget(device: VerifyDevice): void {
    // What it failed with first is what counts.
    if (this.#others.get(device.memory) === device) {
      this.#others.delete(device.memory);
      device.leave().catch(() => {});
    }
    if (this.#device !== device) return;
    this.#device = null;
    device.close().catch(() => {});
  }

  #library(): string | null {
    if (this.#runtime === undefined)
      this.#runtime = locateLibrary(LIBCUDA, { root: this.#root, env: this.#env, platform: this.#platform });
    return this.#runtime;
  }
}

/** What the device is to blame for; everything else is the caller's. */
class DeviceFailure extends Error {
  readonly failure: ZapError;

  constructor(failure: ZapError) {
    super(failure.message);
    this.failure = failure;
  }
}

function failureOf(error: unknown): ZapError {
  if (error instanceof ZapError) return error;
  const text = error instanceof Error ? error.message : String(error);
  return new ZapError("ERR_ZAP_VERIFY", `cuda: ${text}`, { cause: error });
}

/** A listener's bug is its own. */
function tell(job: Job, failure: ZapError): void {
  if (failure instanceof ClosedError) return;
  try {
    job.onDeviceError?.(failure);
  } catch (error) {
    reportError(error);
  }
}
