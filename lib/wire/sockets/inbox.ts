/**
 * Received messages, and the `recv` calls that wait for them. Each message goes to exactly one call, in order of asking.
 *
 * Messages are queued as they lie in memory, in batches; an envelope is made when somebody takes it. So a queue of many small
 * messages costs what they arrived in, and nothing for each.
 */
import { ClosedError } from "../../errors/index.ts";
import { uint32In } from "../../message/load.ts";
import type { Envelope } from "../contract.ts";
import type { Buffer } from "../../memory/index.ts";
import { Fifo } from "../common/fifo.ts";
import { type Lease, type LeaseCount, Leases } from "../common/lease.ts";
import { RecvLine } from "../common/recv-line.ts";
import { PREFIX_BYTES } from "./segment.ts";

/** Where messages come from: told when a batch has been taken whole, so that it may read on. */
export interface BatchSource {
  readonly peerId: string;
  /** Bytes of memory that its queued batches keep. */
  queuedBytes: number;
  taken(): void;
}

/** Memory that messages lie in until their envelopes are released; null stands for what the collector looks after. */
export interface MessageMemory {
  /** One message of `bytes` less is held. */
  letGo(bytes: Uint8Array): void;
  /**
   * The managed buffer that a message is, or null on the heap. Releasing it calls `releaseEnvelope`, and then lets go of the
   * message's memory.
   */
  bufferOf(start: number, end: number, releaseEnvelope: () => void): Buffer | null;
  /** All of the memory, where a view of it is empty now: somebody has transferred away what another message lies in, too. */
  revive(bytes: Uint8Array): Uint8Array;
  /** A message is to be looked at through its buffer alone, so that its views can be emptied. */
  readonly strict: boolean;
}

/** Messages that lie one behind the other in one piece of memory. The envelopes made of it keep it alive. */
export class Batch {
  readonly source: BatchSource;
  private bytes: Uint8Array;
  /** Of `bytes`, as they were made. */
  private readonly length: number;
  /** The next message to take, or with `framed` its length prefix. */
  at: number;
  /** Messages not taken yet. */
  messages: number;
  /** A length prefix stands before each message; else the batch is one message. */
  readonly framed: boolean;
  /** What it counts for while it is queued, bytes. */
  readonly charge: number;
  readonly lease: Lease;
  readonly memory: MessageMemory | null;

  constructor(
    source: BatchSource,
    bytes: Uint8Array,
    at: number,
    messages: number,
    charge: number,
    lease: Lease,
    framed: boolean,
    memory: MessageMemory | null,
  ) {
    this.source = source;
    this.bytes = bytes;
    this.length = bytes.length;
    this.at = at;
    this.messages = messages;
    this.framed = framed;
    this.charge = charge;
    this.lease = lease;
    this.memory = memory;
  }

  /** Gives the memory back where nobody will take the messages. */
  discard(): void {
    for (let held = this.messages; held > 0; held--) this.letGo();
    this.messages = 0;
  }

  /** One message less is held. */
  letGo(): void {
    this.memory?.letGo(this.bytes);
  }

  /** What the messages lie in. */
  look(): Uint8Array {
    if (this.bytes.length === 0 && this.memory !== null) this.bytes = this.memory.revive(this.bytes);
    return this.bytes;
  }

  /** Makes the envelope of the next message. There must be one. */
  take(): SocketEnvelope {
    const { at } = this;
    this.messages--;
    this.lease.count.held++;
    if (!this.framed) return new SocketEnvelope(this, at, this.length);
    const start = at + PREFIX_BYTES;
    this.at = start + uint32In(this.look(), at);
    return new SocketEnvelope(this, start, this.at);
  }
}

export class SocketEnvelope implements Envelope {
  private readonly batch: Batch;
  private readonly start: number;
  private readonly end: number;
  private view: Uint8Array | null = null;
  private managed: Buffer | null = null;
  private released = false;

  constructor(batch: Batch, start: number, end: number) {
    this.batch = batch;
    this.start = start;
    this.end = end;
  }

  get buffer(): Buffer | null {
    const { memory } = this.batch;
    if (this.managed === null && memory !== null && !this.released)
      this.managed = memory.bufferOf(this.start, this.end, () => this.finish());
    return this.managed;
  }

  get peer(): string {
    return this.batch.source.peerId;
  }

  /** Made on first use: many consumers look at who sent it alone. */
  get message(): Uint8Array {
    if (this.released) throw new ClosedError("envelope.message: the envelope was released");
    // In debug mode the buffer has a say in it, every time: its owner may be another now.
    if (this.batch.memory?.strict === true) return this.buffer!.bytes;
    return (this.view ??= this.batch.look().subarray(this.start, this.end));
  }

  release(): void {
    if (this.released) return;
    // The buffer ends the envelope, unless it may not be released now.
    if (this.managed !== null) return this.managed.release();
    this.finish();
    this.batch.letGo();
  }

  private finish(): void {
    this.released = true;
    this.batch.lease.count.held--;
  }
}

export class Inbox extends RecvLine {
  /** Memory that queued batches keep, bytes, and the messages in them; all peers. */
  queuedBytes = 0;
  queuedMessages = 0;
  private readonly queue = new Fifo<Batch>();
  private readonly leases: Leases;

  constructor(unreleased: (count: LeaseCount) => void) {
    super();
    this.leases = new Leases(unreleased);
  }

  lease(peerId: string): Lease {
    return this.leases.of(peerId);
  }

  /** Hands the messages to the `recv` calls that have waited longest, and queues what is left. */
  push(batch: Batch): void {
    while (batch.messages > 0 && this.waiters.length > 0) this.waiters.shift()!.resolve(batch.take());
    if (batch.messages === 0) return;
    batch.source.queuedBytes += batch.charge;
    this.queuedBytes += batch.charge;
    this.queuedMessages += batch.messages;
    this.queue.push(batch);
  }

  /** The next envelope if a message is queued; then nobody waits. */
  take(): Envelope | undefined {
    const batch = this.queue.peek();
    if (batch === undefined) return undefined;
    const envelope = batch.take();
    this.queuedMessages--;
    if (batch.messages === 0) {
      this.queue.shift();
      this.queuedBytes -= batch.charge;
      batch.source.queuedBytes -= batch.charge;
      batch.source.taken();
    }
    return envelope;
  }

  /** Rejects everybody who waits and forgets what is queued. Returns how many messages nobody took. */
  close(): number {
    this.closeLine();
    const unread = this.queuedMessages;
    for (const batch of this.queue.drain()) batch.discard();
    this.queuedBytes = 0;
    this.queuedMessages = 0;
    return unread;
  }
}
