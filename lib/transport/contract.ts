/** The public contract: what every transport is and does, on every host. Types only. */
import type { TriedTransport, ZapError } from "../errors/index.ts";
import type { Buffer, BufferAllocator } from "../memory/index.ts";
import type { Limits, TlsOptions } from "../wire/settings.ts";

/** The four transports, best first. */
export const TRANSPORT_NAMES = ["gpudirect", "dpdk", "uma", "default"] as const;
export type TransportName = (typeof TRANSPORT_NAMES)[number];

/** What a transport does on this host, as probed; never what its name promises. */
export interface Capabilities {
  /** Received bytes lie in memory that the GPU reads in place. */
  readonly gpuResident: boolean;
  /** No copy is made between the place where the wire puts the bytes and `envelope.message`. */
  readonly zeroCopy: boolean;
  /** A floor for the one-way latency to expect of this wire, in microseconds. An order of magnitude, not a promise. */
  readonly minLatencyMicros: number;
}

/** One received message. */
export interface Envelope {
  /** Node id of the sender. */
  readonly peer: string;
  /**
   * The whole ZAP message, header included. It may alias a larger receive buffer or GPU-visible memory: yours to read until
   * `release()`; copy what you keep longer.
   */
  readonly message: Uint8Array;
  /** The managed buffer that `message` lies in, or null where it lies on the heap. */
  readonly buffer: Buffer | null;
  /** Gives the memory back. A second call does nothing. */
  release(): void;
}

/** Counters since the transport was opened; `queued...` are now. Bytes are message bytes, framing not counted. */
export interface TransportStats {
  readonly messagesIn: number;
  readonly messagesOut: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Accepted by `send`, not yet with the kernel or the NIC. */
  readonly queuedOutMessages: number;
  readonly queuedOutBytes: number;
  /** Received, not yet taken by `recv`. */
  readonly queuedInMessages: number;
  readonly queuedInBytes: number;
  /** `send` calls that wait for room or for a connection. */
  readonly waitingSends: number;
  /** `recv` calls that wait for a message. */
  readonly waitingRecvs: number;
  /** Established connections. */
  readonly connections: number;
  /** Connections that have not finished their handshake. */
  readonly handshakes: number;
  /** Received frames and connections turned away, by reason (low-cardinality names). */
  readonly drops: Readonly<Record<string, number>>;
  /** Messages whose `send` had resolved and that could not be delivered. */
  readonly undelivered: number;
}

/** What happens on a transport beside messages. Delivered to `onEvent`, in order. */
export type TransportEvent =
  | { readonly type: "connected"; readonly peer: string; readonly address: string; readonly dialled: boolean }
  | { readonly type: "disconnected"; readonly peer: string; readonly error: ZapError | null }
  /** Something was lost or turned away. `peer` is the node id where it is known, else null. */
  | { readonly type: "error"; readonly peer: string | null; readonly error: ZapError }
  /** Envelopes that were collected without `release()`. */
  | { readonly type: "unreleased"; readonly peer: string; readonly envelopes: number };

export interface TransportOptions {
  /** Who we are: 1 to 60 bytes of UTF-8. Default: a random one. */
  readonly nodeId?: string;
  /** Where peers may dial in: `host:port`, `[v6]:port`, `unix:/path`; port 0 takes a free one. Default: nowhere. */
  readonly listen?: string | readonly string[];
  /** Peers to stay connected with: node id to address. */
  readonly peers?: Readonly<Record<string, string>>;
  /** When given, only these node ids (and those in `peers`) may connect, and only these are dialled. */
  readonly allow?: Iterable<string>;
  /** TLS 1.3 with certificates on both sides. Without it, connections are plaintext. */
  readonly tls?: TlsOptions;
  readonly limits?: Partial<Limits>;
  /** Called for every event, outside of any call into the transport's own state. It must not throw. */
  readonly onEvent?: (event: TransportEvent) => void;
}

export interface CloseReport {
  /** Messages whose `send` had resolved and that could not be flushed in time. */
  readonly undelivered: number;
  /** Messages that had been received and that nobody took with `recv`. */
  readonly unread: number;
}

/** How a transport came to be chosen. */
export interface Selection {
  readonly name: TransportName;
  /** One sentence: why this one. */
  readonly reason: string;
  /** Every transport that was looked at, best first, the chosen one last. */
  readonly tried: readonly TriedTransport[];
}

/**
 * The wire-level surface: one ZAP message per `send` and per `recv`. Delivery is reliable and in order per peer on every
 * transport. Back-pressure is real: a slow peer slows the sender, and memory stays within the limits.
 */
export interface Transport extends BufferAllocator, AsyncDisposable, AsyncIterable<Envelope> {
  readonly name: TransportName;
  readonly caps: Capabilities;
  readonly nodeId: string;
  /** Where peers can dial in, with the real port. */
  readonly addresses: readonly string[];
  /** How `pick()` came to this transport. */
  readonly selection: Selection;

  /**
   * Dials an address and resolves with the node id found there, also when a connection with that node already exists.
   * Rejects with `PeerUnreachableError`, `HandshakeError`, `AbortedError` or `ClosedError`; nothing is left half-open.
   */
  connect(address: string, options?: { signal?: AbortSignal }): Promise<string>;

  /** Node ids with an established connection. */
  peers(): string[];

  /**
   * Hands one ZAP message over for delivery. Resolves when the caller may reuse `message`; until then its bytes must not
   * change. Waits while the peer's queue is full. Rejects with `MessageError` or `FrameTooLargeError` (not a ZAP message, too
   * large), `UnknownPeerError`, `PeerUnreachableError`, `AbortedError`, `ClosedError`. A message that was handed over and then
   * cannot be delivered is reported by an `error` event.
   */
  send(peer: string, message: Uint8Array, options?: { signal?: AbortSignal }): Promise<void>;

  /**
   * The next message, whoever sent it. Many calls may wait at once; each message goes to exactly one, in order of asking.
   * An abort loses no message.
   */
  recv(options?: { signal?: AbortSignal }): Promise<Envelope>;

  stats(): TransportStats;

  /**
   * Stops listening and taking sends, flushes what was accepted within `limits.closeMillis`, half-closes, and lets go of
   * everything. A second call waits for the first. Waiting `send` and `recv` calls reject with `ClosedError`.
   */
  close(): Promise<CloseReport>;
}

/** One thing that a transport needs of the host. */
export interface Prerequisite {
  /** Short and stable, for example `libcuda.so.1`. */
  readonly name: string;
  readonly met: boolean;
  /** What was seen here, in a few words. */
  readonly seen: string;
  /** The command or setting that would mend it; empty where it is met. */
  readonly fix: string;
}

/** What one transport is on this host. Three different things: `built`, `available`, and (in `pick`) chosen. */
export interface Probe {
  readonly name: TransportName;
  /** This build carries all that the transport needs of the library itself (its shim, its data plane). */
  readonly built: boolean;
  /** Every prerequisite is met: `pick` can open it here. */
  readonly available: boolean;
  /** How bytes arrive: `sockets`, `dpdk`, `verbs`. */
  readonly wire: string;
  /** Where they land: `heap`, `cuda`, `metal`, `hip`, `hugepages`, ... */
  readonly memory: string;
  /** The device found, or null. */
  readonly device: string | null;
  /** What it does here, or null where it is not available. */
  readonly caps: Capabilities | null;
  readonly prerequisites: readonly Prerequisite[];
}
