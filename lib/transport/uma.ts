/**
 * The `uma` transport: the sockets wire over memory that CPU and GPU share. On plaintext connections the kernel puts the bytes where the
 * GPU reads them; under TLS they are copied out of what Bun has decrypted.
 */
import { ConfigError, NotAvailableError, PoolError, ShimError, ZapError } from "../errors/index.ts";
import { pollerVerbs, type PollerVerbs } from "../ffi/index.ts";
import {
  debugMode,
  leakText,
  openDeviceMemory,
  SlabPool,
  umaPoolBytes,
  type Buffer,
  type LeakReport,
  type MemoryKind,
  type PoolReport,
} from "../memory/index.ts";
import { Poller, resolveLimits, SlabMemory, SocketsWire, STREAM_BYTES } from "../wire/index.ts";
import type { Capabilities, CloseReport, Selection, Transport, TransportOptions } from "./contract.ts";
import type { Host } from "./host.ts";
import { UMA_CAPS, umaRuntime } from "./probes/uma.ts";
import { WireTransport } from "./wire-transport.ts";

/** Rejects with `NotAvailableError` where the device or its memory cannot be had, `ConfigError` or `AddressError` for bad settings. */
export async function openUma(
  options: TransportOptions,
  selection: Selection,
  host: Host,
): Promise<Transport> {
  const runtime = umaRuntime(host);
  if (runtime === null) throw new NotAvailableError("uma: neither CUDA, HIP nor Metal is usable here");
  const poolBytes = umaPoolBytes(host.env);
  const debug = debugMode(host.env);
  let memory;
  try {
    memory = await openDeviceMemory(runtime, host.env, host);
  } catch (cause) {
    throw cause instanceof ZapError && cause.code === "ERR_ZAP_CONFIG" ? cause : notAvailable(cause);
  }
  try {
    return await openOver(memory, pollerVerbs(memory.shim), { poolBytes, debug }, options, selection);
  } catch (cause) {
    // No thread or no file descriptor is left, say: another transport may do.
    throw cause instanceof ShimError ? notAvailable(cause) : cause;
  }
}

export interface PoolSettings {
  readonly poolBytes: number;
  readonly debug: boolean;
}

/** Opens the transport over any kind of memory, which it closes at its end, also when opening fails. */
export async function openOver(
  kind: MemoryKind,
  verbs: PollerVerbs,
  settings: PoolSettings,
  options: TransportOptions,
  selection: Selection,
): Promise<Transport> {
  const { onEvent } = options;
  const report = (leak: LeakReport): void => {
    try {
      onEvent?.({ type: "error", peer: null, error: new PoolError(leakText(leak)) });
    } catch (error) {
      // A listener's bug is its own.
      reportError(error);
    }
  };
  const pool = new SlabPool(kind, { ...settings, onLeak: report });
  let poller: Poller | null = null;
  try {
    checkPoolBytes(settings.poolBytes, options);
    poller = options.tls === undefined ? await Poller.open(verbs) : null;
    const memory = new SlabMemory(pool, poller);
    return new UmaTransport(await SocketsWire.open(options, memory), selection, memory);
  } catch (error) {
    poller?.close();
    // What went wrong first is what counts.
    await pool.close().catch(() => {});
    throw error;
  }
}

/**
 * The largest frame must fit beside the slab that all connections read into, and the regions that those two lie in. Readers that wait
 * for memory hold none, so that is enough for any number of them. Throws `ConfigError`.
 */
function checkPoolBytes(poolBytes: number, options: TransportOptions): void {
  const { frameBytes } = resolveLimits(options.limits);
  const needed = 2 * Math.max(frameBytes, STREAM_BYTES) + 4 * STREAM_BYTES;
  if (poolBytes === 0 || poolBytes >= needed) return;
  throw new ConfigError(
    `ZAP_UMA_POOL_BYTES is ${poolBytes}; with limits.frameBytes ${frameBytes} uma needs at least ${needed}`,
  );
}

class UmaTransport extends WireTransport<SocketsWire> {
  readonly name = "uma";
  readonly caps: Capabilities;
  readonly poolBytes: number;
  private readonly memory: SlabMemory;
  private closed: Promise<CloseReport> | null = null;

  constructor(wire: SocketsWire, selection: Selection, memory: SlabMemory) {
    super(wire, selection);
    this.memory = memory;
    const { pool } = memory;
    this.poolBytes = pool.poolBytes === 0 ? Infinity : pool.poolBytes;
    this.caps = {
      ...UMA_CAPS,
      gpuResident: pool.kind.reach.gpu,
      zeroCopy: memory.poller !== null,
    };
  }

  allocBuffer(size: number, options?: { signal?: AbortSignal }): Promise<Buffer> {
    return this.memory.alloc(size, options);
  }

  tryAllocBuffer(size: number): Buffer | null {
    return this.memory.pool.tryAlloc(size);
  }

  close(): Promise<CloseReport> {
    return (this.closed ??= this.shut());
  }

  /** Memory that is still in somebody's hands stays until it is released; the report counts it. */
  private async shut(): Promise<CloseReport> {
    const report = await this.wire.close();
    const left: PoolReport = await this.memory.pool.close({ outstanding: "report" });
    return { ...report, buffers: left.buffers };
  }
}

function notAvailable(cause: unknown): NotAvailableError {
  const text = cause instanceof Error ? cause.message : String(cause);
  return new NotAvailableError(`uma: ${text}`, { cause });
}
