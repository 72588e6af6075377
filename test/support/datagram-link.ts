/**
 * One flow of a `DatagramPeer`: messages both ways over datagrams, as docs/wire-dpdk.md has it, in the simplest way that is allowed. It
 * sends a small window, sends all of it again when nothing moves, and acknowledges every datagram at once.
 */
import { ANSWER, DONE, KIND, closeOf, segmentOf, serial, type Datagram, type Segment } from "./datagrams.ts";
import { until } from "./wait.ts";

/** Segments in flight at most. */
const WINDOW = 48;
/** How long nothing moves until everything in flight is sent again. */
const TICK_MILLIS = 20;
/** Bits of the sack that it fills in. */
const SACK_BITS = 64;

export interface LinkSetup {
  readonly peer: string;
  /** Bytes of a segment, as agreed. */
  readonly payload: number;
  readonly session: bigint;
  readonly theirSession: bigint;
  readonly start: number;
  readonly theirStart: number;
  readonly credits: number;
  readonly theirCredits: number;
  /** Puts a datagram on its way to the other end. */
  readonly put: (datagram: Buffer) => void;
}

interface Outgoing {
  readonly segment: number;
  readonly message: number;
  readonly length: number;
  readonly offset: number;
  readonly payload: Uint8Array;
  readonly done: (() => void) | null;
  sacked: boolean;
}

interface Incoming {
  readonly fields: Segment;
  readonly payload: Uint8Array;
}

export class DatagramLink {
  readonly setup: LinkSetup;
  /** Whole messages, as they came. */
  readonly messages: Uint8Array[] = [];
  /** What the other end did that the page forbids. */
  readonly faults: string[] = [];
  /** The reason of CLOSE, ours or theirs. */
  closed: number | null = null;
  /** The other end has confirmed, or sent anything else. */
  heard = false;
  /** Segments that came a second time. */
  duplicates = 0;
  /** Takes nothing: what comes is not even acknowledged. */
  deaf = false;

  private readonly inFlight: Outgoing[] = [];
  private readonly queue: Outgoing[] = [];
  private readonly timer: Timer;
  private nextSegment: number;
  private nextMessage: number;
  private nextNumber: number;
  private limit: number;
  private theirEpoch = 0;
  private moved = false;
  private closing = false;
  private theyAreDone = false;

  private readonly held = new Map<number, Incoming>();
  private ack: number;
  private echo: number;
  private theirMessage: number;
  private parts: Uint8Array[] = [];
  private partBytes = 0;

  constructor(setup: LinkSetup) {
    this.setup = setup;
    this.nextSegment = this.nextMessage = this.nextNumber = setup.start;
    this.limit = (setup.start + setup.theirCredits) >>> 0;
    this.ack = this.theirMessage = setup.theirStart;
    this.echo = (setup.theirStart - 1) >>> 0;
    this.timer = setInterval(() => this.tick(), TICK_MILLIS);
  }

  get peer(): string {
    return this.setup.peer;
  }

  /** Any bytes, also such as are no message. Resolves when all of it was acknowledged. */
  send(message: Uint8Array): Promise<void> {
    return new Promise((resolve) => {
      const { payload } = this.setup;
      const number = this.nextMessage;
      this.nextMessage = (number + 1) >>> 0;
      for (let offset = 0; offset < message.length; offset += payload) {
        const last = offset + payload >= message.length;
        this.queue.push({
          ...{ segment: this.nextSegment, message: number, length: message.length, offset, sacked: false },
          ...{ payload: message.subarray(offset, offset + payload), done: last ? resolve : null },
        });
        this.nextSegment = (this.nextSegment + 1) >>> 0;
      }
      this.pump();
    });
  }

  /** The next message. */
  async recv(millis = 8_000): Promise<Uint8Array> {
    await until(
      () => this.messages.length > 0 || this.faults.length > 0,
      "a message at a bare socket",
      millis,
    );
    if (this.faults.length > 0) throw new Error(this.faults.join("; "));
    return this.messages.shift()!;
  }

  /** Closes in good order: what was sent first, then DONE until the other end is done too. */
  async close(millis = 8_000): Promise<void> {
    this.closing = true;
    this.settle();
    await this.untilClosed(millis);
  }

  async untilClosed(millis = 8_000): Promise<number> {
    await until(() => this.closed !== null, "the end of a flow at a bare socket", millis);
    return this.closed!;
  }

  /** Says no more, whatever comes. */
  vanish(): void {
    clearInterval(this.timer);
    this.deaf = true;
  }

  /** An ACK, as it would be now. */
  acknowledge(flags = 0): void {
    this.put(segmentOf(this.setup.theirSession, { ...this.state(), segment: this.unsent() }, { flags }));
  }

  /** The fields of an ACK, or of the segment, message and datagram that would be sent next. */
  next(): Segment {
    const numbers = { segment: this.unsent(), message: this.nextMessage, number: this.nextNumber };
    return { ...this.state(), ...numbers };
  }

  take(datagram: Datagram): void {
    if (this.deaf) return;
    this.heard = true;
    if (this.closed !== null) {
      if (datagram.kind !== KIND.close) this.put(closeOf(this.setup.theirSession, this.closed, this.ack));
      return;
    }
    if (datagram.kind === KIND.close) return this.end(datagram.reason);
    if (datagram.kind !== KIND.data && datagram.kind !== KIND.ack)
      return void this.faults.push(`a datagram of kind ${datagram.kind} in a flow`);
    const { fields, flags } = datagram;
    this.hear(datagram, fields);
    if ((flags & DONE) !== 0) {
      this.theyAreDone = true;
      // It takes nothing that was not begun.
      const begun = this.inFlight.at(-1)?.message;
      const rest = this.queue.filter(({ message }) => message === begun);
      this.queue.splice(0, Infinity, ...rest);
    }
    if (datagram.kind === KIND.data) this.keep(fields, datagram.payload);
    if (datagram.kind === KIND.data || (flags & ANSWER) !== 0) this.acknowledge();
    this.settle();
  }

  // ---- the half that sends ----

  private pump(): void {
    while (this.inFlight.length < WINDOW && this.closed === null) {
      const next = this.queue[0];
      if (next === undefined || serial(next.segment, this.limit) >= 0) break;
      this.inFlight.push(next);
      this.queue.shift();
      this.transmit(next, 0);
    }
  }

  private transmit(out: Outgoing, flags: number): void {
    const { segment, message, length, offset, payload } = out;
    const number = this.nextNumber;
    this.nextNumber = (number + 1) >>> 0;
    const fields = { ...this.state(), segment, message, length, offset, number };
    this.put(segmentOf(this.setup.theirSession, fields, { payload, flags }));
  }

  /** What the other end says of what we sent. */
  private hear({ epoch }: Datagram, { ack, limit, sack }: Segment): void {
    if (serial(ack, this.unsent()) > 0) return void this.faults.push("it acknowledges what was never sent");
    while (this.inFlight.length > 0 && serial(this.inFlight[0]!.segment, ack) < 0) {
      this.inFlight.shift()!.done?.();
      this.moved = true;
    }
    const news = serial(epoch, this.theirEpoch);
    if (news > 0) {
      this.theirEpoch = epoch;
      this.limit = limit;
      for (const each of this.inFlight) each.sacked = false;
    } else if (news === 0 && serial(limit, this.limit) > 0) this.limit = limit;
    if (news >= 0)
      for (const each of this.inFlight) {
        const bit = serial(each.segment, ack) - 1;
        if (bit >= 0 && bit < SACK_BITS && (sack >> BigInt(bit)) & 1n) each.sacked = true;
      }
    this.pump();
  }

  private tick(): void {
    if (this.closed !== null || this.deaf) return;
    const waiting = this.inFlight.filter(({ segment, sacked }) => !sacked && serial(segment, this.limit) < 0);
    if (!this.moved && waiting.length > 0)
      waiting.forEach((each, at) => this.transmit(each, at === waiting.length - 1 ? ANSWER : 0));
    else if (!this.moved && this.queue.length + this.inFlight.length > 0) this.acknowledge(ANSWER);
    this.moved = false;
    this.settle();
  }

  /** The next new segment that goes out. */
  private unsent(): number {
    return this.queue[0]?.segment ?? this.nextSegment;
  }

  /** Says DONE, and CLOSE once both are. */
  private settle(): void {
    if (this.closed !== null || !(this.closing || this.theyAreDone)) return;
    if (this.inFlight.length + this.queue.length > 0) return;
    if (!this.theyAreDone) return this.acknowledge(DONE);
    this.put(closeOf(this.setup.theirSession, 1, this.ack));
    this.end(1);
  }

  private end(reason: number): void {
    this.closed = reason;
    clearInterval(this.timer);
  }

  // ---- the half that receives ----

  private keep(fields: Segment, payload: Uint8Array): void {
    const { segment, number } = fields;
    if (serial(number, this.echo) > 0) this.echo = number;
    const at = serial(segment, this.ack);
    if (at >= this.setup.credits) return void this.faults.push("it sends without credits");
    if (at < 0 || this.held.has(segment)) return void this.duplicates++;
    this.held.set(segment, { fields, payload });
    for (let next = this.held.get(this.ack); next !== undefined; next = this.held.get(this.ack)) {
      this.held.delete(this.ack);
      this.ack = (this.ack + 1) >>> 0;
      this.append(next);
    }
  }

  private append({ fields, payload }: Incoming): void {
    const { message, length, offset } = fields;
    const last = offset + payload.length === length;
    if (
      message !== this.theirMessage ||
      offset !== this.partBytes ||
      (!last && payload.length !== this.setup.payload)
    )
      this.faults.push(
        `segment ${fields.segment} is not where it should be: ${JSON.stringify({ message, offset })}`,
      );
    this.parts.push(payload);
    this.partBytes += payload.length;
    if (!last) return;
    this.messages.push(new Uint8Array(Buffer.concat(this.parts)));
    this.theirMessage = (this.theirMessage + 1) >>> 0;
    this.parts = [];
    this.partBytes = 0;
  }

  private state(): Segment {
    let sack = 0n;
    for (const segment of this.held.keys()) {
      const bit = serial(segment, this.ack) - 1;
      if (bit < SACK_BITS) sack |= 1n << BigInt(bit);
    }
    const { ack, echo } = this;
    const limit = (ack + this.setup.credits) >>> 0;
    return { ...{ segment: 0, message: 0, length: 0, offset: 0, number: 0 }, ...{ ack, limit, sack, echo } };
  }

  private put(datagram: Buffer): void {
    this.setup.put(datagram);
  }
}
