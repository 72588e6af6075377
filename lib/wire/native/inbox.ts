/**
 * Received messages: the hand-off ring itself is the queue. An entry is taken when somebody asks for it, and counts as queued with the
 * node until then; nothing is drained ahead.
 */
import type { Breather } from "../common/breather.ts";
import { Leases, type LeaseCount } from "../common/lease.ts";
import { RecvLine } from "../common/recv-line.ts";
import type { Envelope } from "../contract.ts";
import { DeviceEnvelope } from "./device-envelope.ts";
import { NativeEnvelope, type EnvelopeHome } from "./envelope.ts";
import type { Flow } from "./flow.ts";
import type { NodeMemory } from "./memory.ts";
import {
  ENTRY_ADDRESS,
  ENTRY_LENGTH,
  ENTRY_PEER,
  ENTRY_TOKEN,
  type RingConsumer,
  type RingProducer,
} from "./rings.ts";

const HALF = 2 ** 32;

export interface InboxOptions {
  readonly handoff: RingConsumer;
  readonly returns: RingProducer;
  readonly memory: NodeMemory;
  /** Takes in the events that were written before the messages that are there now. */
  readonly catchUp: () => void;
  readonly flow: (number: number) => Flow | undefined;
  readonly breather: Breather;
  /** Where messages come in beside the ring; null for nowhere. `pump` is to be called when one has come. */
  readonly beside?: { take(): Envelope | undefined } | null;
  readonly unreleased: (count: LeaseCount) => void;
}

export class NativeInbox extends RecvLine implements EnvelopeHome {
  readonly memory: NodeMemory;
  private readonly handoff: RingConsumer;
  private readonly returns: RingProducer;
  private readonly catchUp: () => void;
  private readonly flow: (number: number) => Flow | undefined;
  private readonly breather: Breather;
  private readonly beside: { take(): Envelope | undefined } | null;
  private readonly leases: Leases;
  /** Of the last message: most come in rows. */
  private last: Flow | undefined;
  private ended = false;
  /** The next message is taken from beside the ring, if there is one: by turns. */
  private asideFirst = false;

  constructor(options: InboxOptions) {
    super();
    this.handoff = options.handoff;
    this.returns = options.returns;
    this.memory = options.memory;
    this.catchUp = options.catchUp;
    this.flow = options.flow;
    this.breather = options.breather;
    this.beside = options.beside ?? null;
    this.leases = new Leases(options.unreleased);
  }

  take(): Envelope | undefined {
    if (this.waiters.length > 0) this.pump();
    if (this.waiters.length > 0 || this.breather.pending !== null || this.isClosed) return undefined;
    return this.next();
  }

  /** Hands messages to those who wait, and asks to be woken for those who still do. */
  pump(): void {
    if (this.isClosed) return;
    // The breather calls again by itself.
    while (this.waiters.length > 0 && this.breather.pending === null) {
      const envelope = this.next();
      if (envelope !== undefined) this.waiters.shift()!.resolve(envelope);
      else if (this.handoff.arm()) return;
    }
  }

  protected override waited(): void {
    this.pump();
  }

  private next(): Envelope | undefined {
    if (this.beside === null) return this.fromRing();
    const first = this.asideFirst;
    this.asideFirst = !first;
    return first ? (this.aside() ?? this.fromRing()) : (this.fromRing() ?? this.aside());
  }

  private aside(): Envelope | undefined {
    const envelope = this.beside?.take();
    if (envelope !== undefined) this.breather.count(envelope.message.length);
    return envelope;
  }

  private fromRing(): Envelope | undefined {
    const { handoff, memory } = this;
    if (handoff.available === 0) return undefined;
    // In this order: whatever was written before the message is there once the message is.
    this.catchUp();
    const { words } = handoff;
    const at = handoff.at(0);
    const address = words[at + ENTRY_ADDRESS]! + words[at + ENTRY_ADDRESS + 1]! * HALF;
    const length = words[at + ENTRY_LENGTH]!;
    const number = words[at + ENTRY_PEER]!;
    const token = words[at + ENTRY_TOKEN]!;
    handoff.consume(1);
    if (this.last?.number !== number || this.last.until !== Infinity) this.last = this.flow(number);
    const flow = this.last;
    const lease = flow === undefined ? this.leases.of(`flow ${number}`) : flow.lease(this.leases);
    memory.hold();
    this.breather.count(length);
    const { received } = memory;
    if (received !== null)
      return new DeviceEnvelope(this, lease, received, address - received.address, length, token);
    return new NativeEnvelope(this, lease, address - memory.address, length, token);
  }

  giveBack(token: number): void {
    if (!this.ended) this.returnToken(token);
    this.memory.letGo();
  }

  private returnToken(token: number): void {
    const { returns } = this;
    returns.words[returns.at(0) + ENTRY_TOKEN] = token;
    returns.publish();
  }

  /** Rejects everybody who waits. What comes from now on is thrown away by `discard`. */
  close(): void {
    this.closeLine();
  }

  /** Gives back what nobody will take. Returns the number of messages. */
  discard(): number {
    const { handoff } = this;
    const messages = handoff.available;
    for (let i = 0; i < messages; i++) {
      this.returnToken(handoff.words[handoff.at(0) + ENTRY_TOKEN]!);
      handoff.consume(1);
    }
    return messages;
  }

  arm(): boolean {
    return this.handoff.arm();
  }

  /** The node is about to be closed: its rings are dead. */
  end(): void {
    this.ended = true;
  }
}
