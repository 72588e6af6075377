/** The public contract: what every transport is and does, on every host. Types only. */
import type { TriedTransport } from "../errors/index.ts";
import type { BufferAllocator } from "../memory/index.ts";
import type { CloseReport, Envelope, WireEvent, WireOptions, WireStats } from "../wire/contract.ts";

export type { CloseReport, Envelope } from "../wire/contract.ts";
/** The settings of a transport are those of its wire. */
export type TransportOptions = WireOptions;
export type TransportEvent = WireEvent;
export type TransportStats = WireStats;

/** The four transports, best first. */
export const TRANSPORT_NAMES = ["gpudirect", "dpdk", "uma", "default"] as const;
export type TransportName = (typeof TRANSPORT_NAMES)[number];

/** What a transport does on this host, as probed; never what its name promises. */
export interface Capabilities {
  /** Received bytes lie in memory that the GPU reads in place. */
  readonly gpuResident: boolean;
  /**
   * No copy is made between the place where the wire puts the bytes and `envelope.message`. False where that place is a GPU's own memory, which the CPU
   * cannot reach: there the GPU reads without a copy, and the CPU does not.
   */
  readonly zeroCopy: boolean;
  /** A floor for the one-way latency to expect of this wire, in microseconds. An order of magnitude, not a promise. */
  readonly minLatencyMicros: number;
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
   * Rejects with `AddressError`, `PeerUnreachableError`, `HandshakeError`, `LimitError`, `AbortedError` or `ClosedError`; nothing is
   * left half-open.
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

  /**
   * `send` for hot paths: takes the message if that needs no waiting, and says whether it did; on false, `await send(...)`.
   * Throws what `send` would reject with for bad arguments.
   */
  trySend(peer: string, message: Uint8Array): boolean;

  /** `recv` for hot paths: the next message if one has come, else null. Never overtakes a `recv` that waits. */
  tryRecv(): Envelope | null;

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
