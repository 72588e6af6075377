/** What every wire takes and gives, whatever carries the bytes. Types only. */
import type { ZapError } from "../errors/index.ts";
import type { Buffer } from "../memory/index.ts";
import type { Limits, TlsOptions } from "./settings.ts";

/** One received message. */
export interface Envelope {
  /** Node id of the sender. */
  readonly peer: string;
  /**
   * The whole ZAP message, header included. It may alias a larger receive buffer or GPU-visible memory: yours to read until
   * `release()`; copy what you keep longer, and never transfer its `ArrayBuffer`.
   *
   * Where it was received into a GPU's own memory (`stats().rdma.method` is `dma-buf` or `peermem`), which the CPU cannot reach, this is a copy on
   * the host: made on first use, counted in `stats().bytesCopied`, and no part of what a GPU reads by `buffer.devicePtr`. To send it on is to send the
   * copy. Throws `ShimError` where the GPU's driver fails to copy.
   */
  readonly message: Uint8Array;
  /** The managed buffer that `message` lies in, or null where it lies on the heap. */
  readonly buffer: Buffer | null;
  /** Gives the memory back. A second call does nothing. */
  release(): void;
}

/** Counters since the wire was opened; `queued...` are now. Bytes are message bytes, framing not counted. */
export interface WireStats {
  readonly messagesIn: number;
  readonly messagesOut: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Accepted by `send`, not yet with the kernel; on the dpdk wire and by RDMA: not yet acknowledged. */
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
  /**
   * Received bytes that were copied in user space on their way into `envelope.message`: 0 for what the kernel put there itself. Of messages in a
   * GPU's own memory, those that somebody has looked at on the host.
   */
  readonly bytesCopied: number;
  /** Received frames and connections turned away, by reason (low-cardinality names). */
  readonly drops: Readonly<Record<string, number>>;
  /** Messages whose `send` had resolved and that could not be delivered. */
  readonly undelivered: number;
  /** The network device, on wires that drive one themselves. */
  readonly port?: PortStats;
  /** The RDMA device, on wires that have one. */
  readonly rdma?: RdmaStats;
}

/** An RDMA device, and what was asked of it. Counts are since it was opened. */
export interface RdmaStats {
  /** Such as `mlx5_0`. */
  readonly device: string;
  readonly port: number;
  /** Now, as far as the device has told. */
  readonly portUp: boolean;
  readonly gidIndex: number;
  readonly link: "RoCE" | "InfiniBand";
  /** Bytes of a packet. */
  readonly mtu: number;
  readonly firmware: string;
  /**
   * What the memory is that received messages lie in, and how it was registered: a GPU's own by `dma-buf` or `peermem`, page-locked host memory of
   * the GPU's runtime, or the host's without any GPU.
   */
  readonly method: "dma-buf" | "peermem" | "page-locked" | "host";
  /** Bytes that are registered, by method. */
  readonly registeredBytes: Readonly<Record<string, number>>;
  /** Large messages are shown to peers by memory windows; else each is registered. */
  readonly windows: boolean;
  /** Queue pairs, now. */
  readonly connections: number;
  /** Requests posted: sends (with `inlineSends`, whose bytes went along), RDMA reads and receives. */
  readonly sends: number;
  readonly inlineSends: number;
  readonly reads: number;
  readonly receives: number;
  readonly completions: number;
  readonly polls: number;
  readonly sleeps: number;
  /** Times that a message waited for a credit. */
  readonly stalls: number;
  /** Completions with an error; those among them where the far end did not answer, or had no receive posted. */
  readonly failures: number;
  readonly retriesExceeded: number;
  readonly rnrExceeded: number;
  /**
   * What the port's driver has counted since the wire was opened, for all users of the port: requests that were sent again, and times that a far end
   * had no receive posted. Null where the driver does not tell.
   */
  readonly retries: number | null;
  readonly rnrEvents: number | null;
  readonly portEvents: number;
  /** Now: slabs that nobody has, and bytes of large messages that are held. */
  readonly buffersFree: number;
  readonly heldBytes: number;
  /** Bytes of sent messages that were copied first: of all that lay outside of registered memory, and of those up to 4 KiB that lay in it. */
  readonly bytesCopiedOut: number;
}

/** A network device that this process drives. Counts are since it was opened. */
export interface PortStats {
  /** DPDK's name of the driver, such as `net_memif`. */
  readonly driver: string;
  /** A PCI address, or a software device with its arguments. */
  readonly device: string;
  /** Bytes of an IP packet. */
  readonly mtu: number;
  readonly mac: string;
  /** Now: whether it is up, and how fast it is; 0 where it does not say. */
  readonly link: boolean;
  readonly mbit: number;
  /** Frames that the device lost for want of room, and for want of buffers; other errors of the device. */
  readonly missed: number;
  readonly noBuffers: number;
  readonly errors: number;
  /** Now: packets that there is room for. */
  readonly buffersFree: number;
  /** Segments of messages sent, and sent once more; datagrams that the port did not take or that found no neighbour. */
  readonly segmentsOut: number;
  readonly segmentsAgain: number;
  readonly notSent: number;
  readonly queues: readonly QueueStats[];
}

/** One queue of a port, and the thread that polls it. */
export interface QueueStats {
  readonly packetsIn: number;
  readonly packetsOut: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly polls: number;
  readonly emptyPolls: number;
  /** Times that it gave way to others or slept. */
  readonly idles: number;
  /** Frames that were not sent: nobody was known to send them to, no buffer, no room in the device. */
  readonly noNeighbour: number;
  readonly noBuffer: number;
  readonly full: number;
}

/** What happens beside messages. Delivered to `onEvent`, in order. */
export type WireEvent =
  | { readonly type: "connected"; readonly peer: string; readonly address: string; readonly dialled: boolean }
  | { readonly type: "disconnected"; readonly peer: string; readonly error: ZapError | null }
  /** Something was lost or turned away. `peer` is the node id where it is known, else null. */
  | { readonly type: "error"; readonly peer: string | null; readonly error: ZapError }
  /** Envelopes that were collected without `release()`. */
  | { readonly type: "unreleased"; readonly peer: string; readonly envelopes: number };

export interface WireOptions {
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
  /** Message format versions to take. Default `[1]`; later Go nodes send version 2, which has the same layout. */
  readonly versions?: readonly number[];
  /** Called for every event, outside of any call into the transport's own state. It must not throw. */
  readonly onEvent?: (event: WireEvent) => void;
}

export interface CloseReport {
  /** Messages whose `send` had resolved and that could not be flushed in time. */
  readonly undelivered: number;
  /** Messages that had been received and that nobody took with `recv`. */
  readonly unread: number;
  /**
   * Pieces of managed memory that are not released, and stay until they are: buffers, and the slabs of received messages (which
   * small messages share).
   */
  readonly buffers: number;
}
