/** The settings that every wire understands, with their safe defaults. */
import { ConfigError } from "../errors/index.ts";

const MIB = 1024 * 1024;

/** Every bound of a transport. Each is a positive integer. */
export interface Limits {
  /** Largest message sent or taken, bytes. */
  readonly frameBytes: number;
  /** Time for a new connection to finish TLS and the hello, milliseconds. */
  readonly handshakeMillis: number;
  /** How long `send` and `connect` try to reach a peer, milliseconds. */
  readonly sendMillis: number;
  /** How long `close()` flushes and waits for peers to hang up, milliseconds. */
  readonly closeMillis: number;
  /** Time for a frame that has begun to arrive whole, milliseconds; time in which we do not read is not counted. */
  readonly frameMillis: number;
  /** A keepalive frame goes out after this long without other traffic; a peer of this library that was silent for three of them is gone. */
  readonly keepaliveMillis: number;
  /** Any other peer that was silent for this long is gone, milliseconds. */
  readonly idleMillis: number;
  /** First pause before dialling a lost peer again; it doubles up to `reconnectMaxMillis`, with jitter. */
  readonly reconnectMinMillis: number;
  readonly reconnectMaxMillis: number;
  /** Connections in all, those in handshake included. */
  readonly connections: number;
  /** Inbound connections in handshake at once; one more pushes out the oldest. */
  readonly handshakes: number;
  /** Accepted by `send` and not yet with the kernel, bytes per peer. A single larger message passes alone. */
  readonly sendQueueBytes: number;
  /** Received and not yet taken by `recv`, bytes per peer. */
  readonly recvQueueBytes: number;
  /** Each of the two kinds of queue, over all peers, bytes. */
  readonly totalQueueBytes: number;
}

export const DEFAULT_LIMITS: Limits = {
  frameBytes: 10 * MIB,
  handshakeMillis: 5_000,
  sendMillis: 5_000,
  closeMillis: 5_000,
  frameMillis: 60_000,
  keepaliveMillis: 20_000,
  idleMillis: 600_000,
  reconnectMinMillis: 100,
  reconnectMaxMillis: 10_000,
  connections: 1_024,
  handshakes: 512,
  // The kernel queues some megabytes more; a deeper queue of ours only falls out of the processor's caches.
  sendQueueBytes: MIB,
  recvQueueBytes: 4 * MIB,
  totalQueueBytes: 256 * MIB,
};

/** The largest frame that the length field and a `Uint8Array` can carry with room to spare. */
const FRAME_BYTES_MAX = 1024 * MIB;

/** Timers take no more: a longer one would fire at once. */
const MILLIS_MAX = 2_147_483_647;

/** Fills in the defaults. Throws `ConfigError` for an unknown name or a value that is not a positive integer. */
export function resolveLimits(given: Partial<Limits> = {}): Limits {
  const limits = { ...DEFAULT_LIMITS };
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new ConfigError("limits: an object of limits is needed");
  }
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(DEFAULT_LIMITS, name)) {
      throw new ConfigError(
        `limits.${name}: no such limit; there are ${Object.keys(DEFAULT_LIMITS).join(", ")}`,
      );
    }
    if (value === undefined) continue;
    if (!Number.isSafeInteger(value) || value <= 0) {
      throw new ConfigError(`limits.${name}: a positive integer is needed, got ${String(value)}`);
    }
    if (name.endsWith("Millis") && value > MILLIS_MAX) {
      throw new ConfigError(`limits.${name}: at most ${MILLIS_MAX} is possible, got ${value}`);
    }
    limits[name as keyof Limits] = value;
  }
  if (limits.reconnectMinMillis > limits.reconnectMaxMillis) {
    const { reconnectMinMillis, reconnectMaxMillis } = limits;
    const text = `${reconnectMinMillis} is above limits.reconnectMaxMillis (${reconnectMaxMillis})`;
    throw new ConfigError(`limits.reconnectMinMillis: ${text}`);
  }
  if (limits.frameBytes < 16 || limits.frameBytes > FRAME_BYTES_MAX) {
    throw new ConfigError(
      `limits.frameBytes: 16 to ${FRAME_BYTES_MAX} is possible, got ${limits.frameBytes}`,
    );
  }
  return limits;
}

/**
 * TLS 1.3 with certificates on both sides. All three are PEM text or bytes, or a list of them.
 * The node id must be the certificate's common name or one of its DNS or URI alternative names.
 */
export interface TlsOptions {
  readonly cert: Pem;
  /** The private key; it is passed to the TLS library and kept nowhere else. */
  readonly key: Pem;
  /** The authorities that peers' certificates must come from. System authorities are not used. */
  readonly ca: Pem;
}

export type Pem = string | Uint8Array | readonly (string | Uint8Array)[];
