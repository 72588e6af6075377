/** The first kernel: checks the ZAP headers of a batch of buffers in place, and writes one verdict for each. */
import { AbortedError, ConfigError, ShimError, TimeoutError } from "../errors/index.ts";
import {
  deviceBehind,
  isSlabBuffer,
  type Buffer,
  type DeviceMemory,
  type HeaderSpan,
  type SlabBuffer,
} from "../memory/index.ts";
import { HEADER_BYTES, headerFault, VERSION } from "../message/index.ts";
import { uint32In } from "../message/load.ts";

/** What a verdict means, by its number. The first fault counts, in this order (see `docs/message.md`). */
export const HEADER_VERDICTS = ["ok", "short", "magic", "version", "size", "root"] as const;
export type HeaderVerdict = (typeof HEADER_VERDICTS)[number];

const ROOT = 5;
/** What one launch takes. */
const BATCH_MAX = 65_536;
/** Versions that fit into a kernel's argument. */
const VERSIONS_MAX = 4;
/** Looks at a running kernel this often without sleeping: most are done by then. */
const SPINS = 16;

export interface CheckHeadersOptions {
  /** Message versions to take, at most four. Default `[1]`. */
  readonly versions?: readonly number[];
  /** `cpu` keeps the work off the device. Default: the device, wherever all of the buffers lie in its memory and it runs kernels. */
  readonly on?: "device" | "cpu";
  readonly signal?: AbortSignal;
}

export interface HeaderCheck {
  /** One byte for each buffer, in order: an index into `HEADER_VERDICTS`. */
  readonly verdicts: Uint8Array;
  /** Who did the work. */
  readonly where: "cpu" | "cuda" | "hip" | "metal";
}

/**
 * Checks magic, version, size and root offset of the ZAP message that each buffer holds. On the device where all buffers lie in
 * memory of one device that runs kernels, else on the CPU, with the same verdicts.
 *
 * Until it resolves nobody may write to the buffers; one that is released meanwhile goes back to its pool when the device has
 * finished. Rejects with `ConfigError` for versions that cannot be used, `ClosedError` for a released buffer, `AbortedError`, and with what
 * the device fails with (`ShimError`, `TimeoutError`).
 */
export async function checkHeaders(
  buffers: readonly (Buffer | Uint8Array)[],
  options: CheckHeadersOptions = {},
): Promise<HeaderCheck> {
  const { versions = [VERSION], on = "device", signal } = options;
  checkVersions(versions);
  if (signal?.aborted) throw new AbortedError("checkHeaders", signal.reason);
  const device = on === "device" ? deviceOf(buffers) : null;
  if (device === null) return { verdicts: onCpu(buffers, versions), where: "cpu" };
  const slabs = buffers as readonly SlabBuffer[];
  const idle = Promise.withResolvers<void>();
  const verdicts = new Uint8Array(slabs.length);
  let lent = 0;
  let fault: Error | null = null;
  try {
    // All of them before the first is read: one that cannot be had costs the others nothing.
    for (; lent < slabs.length; lent++) slabs[lent]!.lend(idle.promise);
    const spans = slabs.map(spanOf);
    for (let at = 0; at < spans.length; at += BATCH_MAX)
      verdicts.set(await onDevice(device, spans.slice(at, at + BATCH_MAX), versions), at);
  } catch (error) {
    if (mayStillRun(error)) fault = error;
    throw error;
  } finally {
    for (const buffer of slabs.slice(0, lent)) buffer.returned(fault);
    idle.resolve();
  }
  // A kernel cannot be called off; its result can.
  if (signal?.aborted) throw new AbortedError("checkHeaders", signal.reason);
  return { verdicts, where: device.name };
}

function checkVersions(versions: readonly number[]): void {
  const good = versions.every((version) => Number.isInteger(version) && version > 0 && version < 65_536);
  if (good && versions.length > 0 && versions.length <= VERSIONS_MAX) return;
  throw new ConfigError(`versions: 1 to ${VERSIONS_MAX} message versions are needed, each 1 to 65535`);
}

/** The device that can check all of them where they lie. */
function deviceOf(buffers: readonly (Buffer | Uint8Array)[]): DeviceMemory | null {
  const [first] = buffers;
  const device = first === undefined || !isSlabBuffer(first) ? null : deviceBehind(first.kind);
  if (device === null || !device.device.flags.has("kernels")) return null;
  const all = buffers.every((buffer) => isSlabBuffer(buffer) && deviceBehind(buffer.kind) === device);
  return all ? device : null;
}

function onCpu(buffers: readonly (Buffer | Uint8Array)[], versions: readonly number[]): Uint8Array {
  return Uint8Array.from(buffers, (buffer) =>
    verdictOf(buffer instanceof Uint8Array ? buffer : buffer.bytes, versions),
  );
}

function verdictOf(bytes: Uint8Array, versions: readonly number[]): number {
  const fault = headerFault(bytes, 0, bytes.length, versions);
  if (fault !== 0) return fault;
  const root = uint32In(bytes, 8);
  // The kernel's rule: no root at all, or one between the header and the end.
  return root === 0 || (root >= HEADER_BYTES && root <= uint32In(bytes, 12)) ? 0 : ROOT;
}

/** Launches the kernel and waits for it. */
async function onDevice(
  device: DeviceMemory,
  spans: readonly HeaderSpan[],
  versions: readonly number[],
): Promise<Uint8Array> {
  device.fenceToDevice();
  const job = device.checkBegin(spans, versions);
  const verdicts = new Uint8Array(spans.length);
  const deadline = performance.now() + device.timeoutMillis;
  try {
    for (let looks = 0; !device.checkPoll(job, verdicts); looks++) {
      if (performance.now() > deadline) throw late(device);
      await (looks < SPINS ? new Promise((resolve) => setImmediate(resolve)) : Bun.sleep(1));
    }
  } catch (error) {
    running.add(error as Error);
    throw error;
  }
  return verdicts;
}

/** Errors after which a kernel that was launched may still run. */
const running = new WeakSet<Error>();

/** A launch that was not answered in time may succeed later. */
function mayStillRun(error: unknown): error is Error {
  if (error instanceof ShimError && error.status === "ZAP_E_TIMEOUT") return true;
  return error instanceof Error && running.has(error);
}

function spanOf({ regionHandle, regionOffset, size }: SlabBuffer): HeaderSpan {
  return { region: regionHandle, offset: regionOffset, length: size };
}

function late({ timeoutMillis }: DeviceMemory): TimeoutError {
  return new TimeoutError(
    `checkHeaders: the device did not finish within ${timeoutMillis} ms (ZAP_DEVICE_MILLIS)`,
  );
}
