/** Received envelopes, and the `recv` calls that wait for them. Each envelope goes to exactly one call, in order of asking. */
import { AbortedError, ClosedError } from "../../errors/index.ts";
import type { Envelope } from "../contract.ts";
import { Fifo } from "./fifo.ts";

/** What a queued envelope costs beside its bytes. Counting it keeps a flood of tiny messages within the limits. */
const ENVELOPE_OVERHEAD_BYTES = 64;

/** Where envelopes come from: told when one has been taken, so that it may read on. */
export interface EnvelopeSource {
  readonly peerId: string;
  queuedBytes: number;
  taken(): void;
}

/** How many envelopes over one receive buffer were not released yet; outlives the buffer, to be read when it is collected. */
export interface LeaseCount {
  readonly peerId: string;
  held: number;
}

/** One receive buffer, held alive by the envelopes that lie in it. */
export class Lease {
  readonly count: LeaseCount;

  constructor(peerId: string) {
    this.count = { peerId, held: 0 };
  }
}

export class SocketEnvelope implements Envelope {
  readonly source: EnvelopeSource;
  readonly buffer = null;
  /** Bytes that this envelope counts for while it is queued; 0 when it is not. */
  charge = 0;
  private readonly chunk: Uint8Array;
  private readonly start: number;
  private readonly end: number;
  private view: Uint8Array | null = null;
  private lease: Lease | null;

  constructor(source: EnvelopeSource, chunk: Uint8Array, start: number, end: number, lease: Lease) {
    this.source = source;
    this.chunk = chunk;
    this.start = start;
    this.end = end;
    this.lease = lease;
    lease.count.held++;
  }

  get peer(): string {
    return this.source.peerId;
  }

  get byteLength(): number {
    return this.end - this.start;
  }

  /** Made on first use: many consumers look at the header or the length alone. */
  get message(): Uint8Array {
    return (this.view ??= this.chunk.subarray(this.start, this.end));
  }

  release(): void {
    if (this.lease === null) return;
    this.lease.count.held--;
    this.lease = null;
  }
}

interface RecvWaiter {
  readonly resolve: (envelope: Envelope) => void;
  readonly reject: (error: Error) => void;
}

export class Inbox {
  /** Bytes and messages queued, all peers. */
  queuedBytes = 0;
  private readonly queue = new Fifo<SocketEnvelope>();
  private readonly waiters = new Fifo<RecvWaiter>();
  private closed = false;
  private readonly registry: FinalizationRegistry<LeaseCount>;

  constructor(unreleased: (count: LeaseCount) => void) {
    this.registry = new FinalizationRegistry((count) => {
      if (count.held > 0) unreleased(count);
    });
  }

  get queuedMessages(): number {
    return this.queue.length;
  }

  get waiting(): number {
    return this.waiters.length;
  }

  lease(peerId: string): Lease {
    const lease = new Lease(peerId);
    this.registry.register(lease, lease.count);
    return lease;
  }

  /** Hands the envelope to the `recv` that has waited longest, or queues it. */
  push(envelope: SocketEnvelope): void {
    const waiter = this.waiters.shift();
    if (waiter !== undefined) {
      waiter.resolve(envelope);
      return;
    }
    envelope.charge = envelope.byteLength + ENVELOPE_OVERHEAD_BYTES;
    envelope.source.queuedBytes += envelope.charge;
    this.queuedBytes += envelope.charge;
    this.queue.push(envelope);
  }

  /** Counts bytes that a queued envelope keeps alive beside its own. */
  chargeMore(envelope: SocketEnvelope, bytes: number): void {
    if (envelope.charge === 0) return;
    envelope.charge += bytes;
    envelope.source.queuedBytes += bytes;
    this.queuedBytes += bytes;
  }

  /** The next envelope if one is queued. */
  take(): Envelope | undefined {
    const envelope = this.queue.shift();
    if (envelope === undefined) return undefined;
    this.queuedBytes -= envelope.charge;
    envelope.source.queuedBytes -= envelope.charge;
    envelope.charge = 0;
    envelope.source.taken();
    return envelope;
  }

  recv(signal: AbortSignal | undefined): Promise<Envelope> {
    if (signal?.aborted) return Promise.reject(new AbortedError("recv", signal.reason));
    const envelope = this.take();
    if (envelope !== undefined) return Promise.resolve(envelope);
    if (this.closed) return Promise.reject(new ClosedError("recv: the transport is closed"));
    return new Promise<Envelope>((resolve, reject) => {
      if (signal === undefined) {
        this.waiters.push({ resolve, reject });
        return;
      }
      const onAbort = (): void => {
        if (this.waiters.remove(waiter)) reject(new AbortedError("recv", signal.reason));
      };
      const settled = (): void => signal.removeEventListener("abort", onAbort);
      const waiter: RecvWaiter = {
        resolve: (given) => (settled(), resolve(given)),
        reject: (error) => (settled(), reject(error)),
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.waiters.push(waiter);
    });
  }

  /** Rejects everybody who waits and forgets what is queued. Returns how many messages nobody took. */
  close(): number {
    this.closed = true;
    for (const waiter of this.waiters.drain())
      waiter.reject(new ClosedError("recv: the transport was closed"));
    const unread = this.queue.drain();
    for (const envelope of unread) envelope.release();
    this.queuedBytes = 0;
    return unread.length;
  }
}
