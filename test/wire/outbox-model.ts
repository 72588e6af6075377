/** A model of the outbox: a plain list of frames, and what of the first one is out. Checks the real one at every step. */
import { expect } from "bun:test";
import type { Settle } from "../../lib/wire/common/settle.ts";
import { Outbox, type OutboxPool } from "../../lib/wire/sockets/outbox.ts";
import { frameOf, joined, messageOf, numberOf, sameBytes } from "../support/messages.ts";

interface Item {
  readonly frame: Uint8Array;
  readonly kind: "message" | "direct" | "control";
  readonly settle: CountingSettle | null;
}

class CountingSettle implements Settle {
  dones = 0;
  failures = 0;
  /** The caller's memory, scribbled over as soon as the caller may. */
  private readonly lent: Uint8Array;

  constructor(lent: Uint8Array) {
    this.lent = lent;
  }
  done(): void {
    this.dones++;
    this.lent.fill(0xee);
  }
  failed(): void {
    this.failures++;
    this.lent.fill(0xee);
  }
}

/** What one connection has taken, and whether it was lost (with its last frame cut) or retired (and finished). */
interface Taken {
  readonly chunks: Uint8Array[];
  lost: boolean;
}

function ensure(holds: boolean, what: string): void {
  if (!holds) throw new Error(`not so: ${what}`);
}

export class OutboxUnderTest {
  readonly outbox: Outbox;
  private readonly settles: CountingSettle[] = [];
  private readonly items: Item[] = [];
  private readonly connections: Taken[] = [{ chunks: [], lost: false }];
  private readonly accepted: number[] = [];
  private offset = 0;
  /** How often a connection was lost in the middle of the first frame. */
  private cuts = 0;
  private sentMessages = 0;
  private sentBytes = 0;
  private acceptedBytes = 0;
  private numbers = 0;

  constructor(pool: OutboxPool) {
    this.outbox = new Outbox(pool);
  }

  private readonly sent = (messages: number, bytes: number): void => {
    ensure(messages > 0, "only messages are reported");
    this.sentMessages += messages;
    this.sentBytes += bytes;
  };

  append(bytes: number): void {
    const number = this.numbers++;
    const message = messageOf(bytes, number);
    const frame = frameOf(message);
    this.accepted.push(number);
    this.acceptedBytes += bytes;
    if (!Outbox.isDirect(message)) {
      this.outbox.append(message);
      message.fill(0xee);
      this.items.push({ frame, kind: "message", settle: null });
      return;
    }
    const settle = new CountingSettle(message);
    this.settles.push(settle);
    this.outbox.appendDirect(message, settle);
    this.items.push({ frame, kind: "direct", settle });
  }

  control(bytes: number): void {
    const frame = frameOf(new Uint8Array(bytes).fill(7));
    const settle = new CountingSettle(new Uint8Array(0));
    this.settles.push(settle);
    this.outbox.appendControl(frame, settle);
    this.items.push({ frame, kind: "control", settle });
  }

  /** The socket takes `budget` bytes in all. */
  write(budget: number): void {
    let left = budget;
    const socket = {
      write: (bytes: Uint8Array, offset: number, length: number): number => {
        const count = Math.min(left, length);
        left -= count;
        const chunk = bytes.slice(offset, offset + count);
        this.connections.at(-1)?.chunks.push(chunk);
        this.take(chunk);
        return count;
      },
    };
    const result = this.outbox.write(socket, this.sent);
    expect(result).toBe(this.items.length === 0 ? "drained" : "blocked");
  }

  /** The connection turns out to be closed at the next write. */
  writeToClosed(): void {
    const result = this.outbox.write({ write: () => -1 }, this.sent);
    expect(result).toBe(this.items.length === 0 ? "drained" : "gone");
  }

  private take(chunk: Uint8Array): void {
    let at = 0;
    while (at < chunk.length) {
      const item = this.items[0];
      if (item === undefined) throw new Error("more was written than was queued");
      const count = Math.min(chunk.length - at, item.frame.length - this.offset);
      const [got, wanted] = [
        chunk.subarray(at, at + count),
        item.frame.subarray(this.offset, this.offset + count),
      ];
      ensure(sameBytes(got, wanted), `the right bytes of a ${item.kind} at ${this.offset}`);
      at += count;
      this.offset += count;
      if (this.offset === item.frame.length) {
        if (this.items.shift()?.kind !== "control") this.cuts = 0;
        this.offset = 0;
      }
    }
  }

  private dropControls(): void {
    const kept = this.items.filter((item) => item.kind !== "control");
    if (this.items[0]?.kind === "control") this.offset = 0;
    this.items.splice(0, Infinity, ...kept);
  }

  lose(): void {
    this.outbox.rewind(this.sent);
    if (this.offset > 0 && this.items[0]?.kind !== "control") this.cuts++;
    expect(this.outbox.cuts).toBe(this.cuts);
    this.offset = 0;
    this.dropControls();
    const connection = this.connections.at(-1);
    if (connection !== undefined) connection.lost = true;
    this.connections.push({ chunks: [], lost: false });
  }

  retire(): void {
    const rest = this.outbox.cut(this.sent);
    const head = this.offset > 0 ? this.items.shift() : undefined;
    if (head !== undefined && head.kind !== "control") this.cuts = 0;
    const expected = head?.frame.subarray(this.offset) ?? null;
    if (expected === null) expect(rest).toBeNull();
    else ensure(rest !== null && sameBytes(rest, expected), "the rest of the frame that was cut");
    if (rest !== null) this.connections.at(-1)?.chunks.push(rest.slice());
    this.offset = 0;
    this.dropControls();
    this.connections.push({ chunks: [], lost: false });
  }

  /** Takes the `nth` large message back, as an abort does. */
  abort(nth: number): void {
    const large = this.items.filter((item) => item.kind === "direct" && item.settle?.dones === 0);
    const item = large[nth % Math.max(1, large.length)];
    const settle = item?.settle;
    if (item === undefined || settle === null || settle === undefined) return;
    const begun = item === this.items[0] && this.offset > 0;
    const retracted = this.outbox.retract(settle);
    expect(retracted).toBe(!begun);
    if (!retracted) {
      this.outbox.detach(settle);
      expect(settle.dones).toBe(1);
      return;
    }
    if (this.items.find((other) => other.kind !== "control") === item) this.cuts = 0;
    this.items.splice(this.items.indexOf(item), 1);
    this.settles.splice(this.settles.indexOf(settle), 1);
    const number = numberOf(item.frame.subarray(4));
    this.accepted.splice(this.accepted.indexOf(number), 1);
    this.acceptedBytes -= item.frame.length - 4;
    expect([settle.dones, settle.failures]).toEqual([0, 0]);
  }

  /** Gives up on a peer whose connection is lost already. */
  clear(): void {
    this.lose();
    const waiting = this.items.filter((item) => item.kind === "direct" && item.settle?.dones === 0);
    const messages = this.items.filter((item) => item.kind !== "control");
    const failed = this.settles.reduce((sum, settle) => sum + settle.failures, 0);
    expect(this.outbox.clear(new Error("given up"))).toBe(messages.length - waiting.length);
    for (const { settle } of waiting) expect(settle?.failures).toBe(1);
    const nowFailed = this.settles.reduce((sum, settle) => sum + settle.failures, 0);
    const controls = this.items.length - messages.length;
    expect(nowFailed - failed).toBeLessThanOrEqual(waiting.length + controls);
    for (const { frame } of messages) {
      this.accepted.splice(this.accepted.indexOf(numberOf(frame.subarray(4))), 1);
      this.acceptedBytes -= frame.length - 4;
    }
    this.items.length = 0;
    this.cuts = 0;
  }

  /** Gives a message up after a loss that cut it. */
  dropHead(): void {
    const cut = this.offset > 0 && this.items[0]?.kind !== "control";
    this.lose();
    if (!cut) return;
    const head = this.items.shift();
    const waits = head?.kind === "direct" && head.settle?.dones === 0;
    expect(this.outbox.dropHead(new Error("given up"))).toBe(head === undefined || waits ? 0 : 1);
    if (head === undefined) return;
    if (waits) expect(head.settle?.failures).toBe(1);
    this.accepted.splice(this.accepted.indexOf(numberOf(head.frame.subarray(4))), 1);
    this.acceptedBytes -= head.frame.length - 4;
    this.cuts = 0;
  }

  /** What must hold between any two calls. */
  check(): void {
    const queued = this.items.reduce((sum, item) => sum + item.frame.length, 0) - this.offset;
    expect(this.outbox.bytes).toBe(queued);
    for (const item of this.items) {
      if (item.kind === "direct" && item.settle !== null) expect(item.settle.failures).toBe(0);
    }
    const waiting = new Set(this.items.map((item) => item.settle));
    for (const settle of this.settles) {
      expect(settle.dones + settle.failures).toBeLessThanOrEqual(1);
      if (!waiting.has(settle)) expect(settle.dones + settle.failures).toBe(1);
    }
    // A block reports its messages when it is out as a whole, so the count may lag, but never lead.
    expect(this.outbox.messages).toBe(this.accepted.length - this.sentMessages);
    expect(this.outbox.messages).toBeGreaterThanOrEqual(
      this.items.filter((item) => item.kind !== "control").length,
    );
  }

  /** Everything goes out; then every accepted message has arrived once, in order. */
  finish(): void {
    this.write(Infinity);
    this.check();
    expect(this.outbox.bytes).toBe(0);
    expect(this.outbox.messages).toBe(0);

    expect([this.sentMessages, this.sentBytes]).toEqual([this.accepted.length, this.acceptedBytes]);
    expect(this.connections.flatMap((connection) => numbersIn(connection))).toEqual(this.accepted);
  }
}

/** The numbers of the messages in a connection's bytes; a frame cut at the end of a lost one is thrown away. */
function numbersIn({ chunks, lost }: Taken): number[] {
  const bytes = joined(...chunks);
  const view = new DataView(bytes.buffer);
  const numbers: number[] = [];
  let at = 0;
  while (at < bytes.length) {
    const length = at + 4 <= bytes.length ? view.getUint32(at, true) : Infinity;
    if (at + 4 + length > bytes.length) {
      ensure(lost, "a connection that was not lost ends with a whole frame");
      break;
    }
    if (length >= 16) numbers.push(view.getUint32(at + 4 + 16, true));
    at += 4 + length;
  }
  return numbers;
}
