/** The first kernel: checks the ZAP headers of a batch of buffers in place, and writes one verdict for each. */
import { AbortedError, ConfigError, TimeoutError } from "../errors/index.ts";
import {
  DeviceMemory,
  isSlabBuffer,
  type Buffer,
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
  const verdicts = new Uint8Array(buffers.length);
  for (let at = 0; at < buffers.length; at += BATCH_MAX) {
    const some = buffers.slice(at, at + BATCH_MAX) as SlabBuffer[];
    const idle = Promise.withResolvers<void>();
    for (const buffer of some) buffer.lend(idle.promise);
    verdicts.set(await onDevice(device, some, versions, idle), at);
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
  if (first === undefined || !isSlabBuffer(first) || !(first.kind instanceof DeviceMemory)) return null;
  const { kind } = first;
  if (!kind.device.flags.has("kernels")) return null;
  return buffers.every((buffer) => isSlabBuffer(buffer) && buffer.kind === kind) ? kind : null;
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

/** `idle` is settled when the device has let go of the buffers, or nobody can say whether it has. */
async function onDevice(
  device: DeviceMemory,
  buffers: readonly SlabBuffer[],
  versions: readonly number[],
  idle: { resolve(): void; reject(error: unknown): void },
): Promise<Uint8Array> {
  let launched = false;
  try {
    const spans = buffers.map(spanOf);
    device.fenceToDevice();
    const job = device.checkBegin(spans, versions);
    launched = true;
    const verdicts = new Uint8Array(buffers.length);
    const deadline = performance.now() + device.timeoutMillis;
    for (let looks = 0; !device.checkPoll(job, verdicts); looks++) {
      if (performance.now() > deadline) throw late(device);
      await (looks < SPINS ? new Promise((resolve) => setImmediate(resolve)) : Bun.sleep(1));
    }
    idle.resolve();
    return verdicts;
  } catch (error) {
    if (launched) idle.reject(error);
    else idle.resolve();
    throw error;
  }
}

function spanOf({ regionHandle, regionOffset, size }: SlabBuffer): HeaderSpan {
  return { region: regionHandle, offset: regionOffset, length: size };
}

function late({ timeoutMillis }: DeviceMemory): TimeoutError {
  return new TimeoutError(
    `checkHeaders: the device did not finish within ${timeoutMillis} ms (ZAP_DEVICE_MILLIS)`,
  );
}
