/** One remote node: the connection it is reached by, the frames on their way to it, and the `send` calls that wait. */
import {
  AbortedError,
  ClosedError,
  ConnectionLostError,
  PeerUnreachableError,
  UndeliveredError,
  ZapError,
} from "../../errors/index.ts";
import type { Connection } from "./connection.ts";
import { changedMessage } from "../common/sendable.ts";
import { settling, type Settle } from "../common/settle.ts";
import { WaitList, type Waiter } from "../common/waitlist.ts";
import type { Hub } from "./hub.ts";
import { Outbox, vanished, type WriteResult } from "./outbox.ts";

/** A message that the far end will not take must not keep everything behind it from ever getting there. */
const CUTS_MAX = 3;

interface SendWaiter extends Waiter {
  readonly message: Uint8Array;
  /** As it was when `send` was called. */
  readonly bytes: number;
  readonly queuedAt: number;
  readonly settle: Settle;
}

export class Peer {
  readonly id: string;
  readonly hub: Hub;
  readonly outbox: Outbox;
  /** Where to dial it; null where it can only dial us. */
  address: string | null = null;
  /** Named in the configuration: dialled again whenever it is lost. */
  configured = false;
  /** The connection that messages go out on; others of the same peer are held or retiring. */
  connection: Connection | null = null;
  /** `connection` is there and may be sent on. */
  ready = false;
  /** Why it was last not reachable. */
  fault: ZapError | null = null;
  /** Since when it has not been ready, milliseconds of `performance.now()`. */
  downSince = performance.now();
  /** Dial attempts since it was last connected for a while, when the last one failed, and when the next is due. */
  attempts = 0;
  failedDialAt = 0;
  nextDialAt = 0;
  dialling = false;
  /** The wire above has something for it. */
  wantedAbove = false;
  /** The connection that the wire above was told of. */
  private told: Connection | null = null;
  /** On the list of peers to be flushed. */
  dirty = false;
  private readonly waiters = new WaitList<SendWaiter>();
  private blocked = false;
  /** `connect` calls that learnt this peer's id from a duplicate answer and wait for the first connection. */
  readonly connectWaiters = new Set<(error: ZapError | null) => void>();

  constructor(id: string, hub: Hub) {
    this.id = id;
    this.hub = hub;
    this.outbox = new Outbox(hub.pool);
  }

  get waiting(): number {
    return this.waiters.length;
  }

  get reached(): boolean {
    return this.connection !== null;
  }

  get wanted(): boolean {
    return this.wantedAbove || this.waiters.length > 0 || this.outbox.messages > 0;
  }

  /** Whether nothing is left of this peer but perhaps its address. */
  get forgettable(): boolean {
    return this.address === null && this.idle;
  }

  get idle(): boolean {
    return this.connection === null && !this.dialling && !this.wanted && this.connectWaiters.size === 0;
  }

  /**
   * A peer with nothing queued may always queue one message: one that is larger than a limit passes alone, and peers that do
   * not read cannot use up what others need.
   */
  private hasRoom(length: number): boolean {
    const { outbox, hub } = this;
    if (outbox.bytes === 0) return true;
    const { sendQueueBytes, totalQueueBytes } = hub.limits;
    return outbox.bytes + length <= sendQueueBytes && hub.pool.queuedBytes + length <= totalQueueBytes;
  }

  /** The fast path of `send`: takes the message if that needs no waiting. */
  accept(message: Uint8Array): boolean {
    if (!this.ready || this.waiters.length > 0 || !this.hasRoom(message.length)) return false;
    if (Outbox.isDirect(message)) return false;
    this.outbox.append(message);
    return true;
  }

  /** The slow path: a large message, a full queue, no connection, or a signal to listen to. */
  enqueue(message: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted) return Promise.reject(new AbortedError("send", signal.reason));
    return new Promise<void>((resolve, reject) => {
      const settle = settling(resolve, reject, signal, (reason) => this.abort(waiter, reason));
      const queuedAt = performance.now();
      const waiter: SendWaiter = { state: "waiting", message, bytes: message.length, queuedAt, settle };
      this.waiters.push(waiter);
      this.admit();
      if (this.ready) this.flush();
    });
  }

  /** A message whose bytes are on the wire already counts as handed over; any other is taken back. */
  private abort(waiter: SendWaiter, reason: unknown): void {
    const { settle } = waiter;
    if (this.waiters.drop(waiter) || this.outbox.retract(settle))
      settle.failed(new AbortedError("send", reason));
    else this.outbox.detach(settle);
    this.admit();
    this.flush();
  }

  /** Moves waiting messages into the outbox while there is room, in order of asking. */
  admit(): void {
    if (!this.ready) return;
    for (let waiter = this.waiters.peek(); waiter !== undefined; waiter = this.waiters.peek()) {
      if (!this.hasRoom(waiter.message.length)) return;
      this.waiters.shift();
      if (waiter.message.length !== waiter.bytes) waiter.settle.failed(changedMessage());
      else if (Outbox.isDirect(waiter.message)) this.outbox.appendDirect(waiter.message, waiter.settle);
      else {
        this.outbox.append(waiter.message);
        waiter.settle.done();
      }
    }
  }

  /** Writes until the socket takes no more or nothing is left. */
  flush(): void {
    const { connection } = this;
    if (!this.ready || this.blocked || connection === null || !connection.clear) return;
    this.drained(connection);
  }

  /** The socket takes bytes again (or for the first time). */
  drained(connection: Connection): void {
    if (!this.ready || connection !== this.connection || connection.socket === null || !connection.clear)
      return;
    const { outbox, hub } = this;
    for (;;) {
      const before = outbox.bytes;
      const result = this.write(connection);
      if (outbox.bytes < before) connection.wroteAt = performance.now();
      this.blocked = result === "blocked";
      if (result === "gone") return connection.broken(new Error("the socket takes nothing any more"));
      if (this.waiters.length === 0 || outbox.bytes > hub.limits.sendQueueBytes / 2) break;
      const waiting = this.waiters.length;
      this.admit();
      if (this.waiters.length === waiting || this.blocked) break;
    }
    if (outbox.bytes === 0 && hub.closing) connection.retire(null);
  }

  private write(connection: Connection): WriteResult {
    const { socket } = connection;
    if (socket === null) return "gone";
    try {
      return this.outbox.write(socket, connection.onSent);
    } catch (error) {
      if (!(error instanceof ZapError)) throw error;
      connection.fail(error);
      return "gone";
    }
  }

  /** Puts a connection to use. `ready` is false while it might turn out a duplicate. */
  attach(connection: Connection, ready: boolean): void {
    this.connection = connection;
    this.blocked = false;
    this.ready = ready;
    this.fault = null;
    for (const waiter of this.connectWaiters) waiter(null);
    this.connectWaiters.clear();
    if (ready) this.start();
  }

  start(): void {
    this.ready = true;
    this.tellUp();
    this.admit();
    this.flush();
  }

  /** The connection is lost or no longer to be sent on. What it did not take waits for the next one. */
  detach(error: ZapError | null): void {
    if (this.connection !== null) this.rewind(this.connection);
    this.down(error);
    if (error !== null) this.fault = error;
  }

  private tellUp(): void {
    const { connection, hub } = this;
    if (hub.above === null || connection === null || this.told === connection) return;
    this.told = connection;
    if (connection.link !== null) this.giveUpQueued();
    hub.above.up(this.id, connection.link);
  }

  /** What was meant for a node that could not do as we do has no place on a link. */
  private giveUpQueued(): void {
    const error = new ConnectionLostError(`peer ${this.id} came back over another transport`);
    for (const waiter of this.waiters.drain()) waiter.settle.failed(error);
    this.lose(error);
  }

  private tellDown(error: ZapError | null): void {
    const { told } = this;
    this.told = null;
    if (told !== null) this.hub.above?.down(this.id, told.link, error);
  }

  private rewind(connection: Connection): void {
    this.outbox.rewind(connection.onSent);
    if (this.outbox.cuts < CUTS_MAX) return;
    const text = `${CUTS_MAX} connections in a row were lost in the middle of one message; it is given up`;
    const error = new ConnectionLostError(text);
    if (this.outbox.dropHead(error) > 0) this.reportUndelivered(1, error);
  }

  /** Retires the connection in use: it finishes the frame that has begun, the rest waits for the next. */
  retireConnection(): void {
    const { connection } = this;
    if (connection === null) return;
    if (this.outbox.headHasVanished) return connection.fail(vanished());
    const rest = this.outbox.cut(connection.onSent);
    this.down(null);
    connection.retire(rest);
  }

  private down(error: ZapError | null): void {
    const now = performance.now();
    const { connection } = this;
    // A peer that comes and goes without taking anything does not put off the deadline of what waits for it.
    const useful =
      connection === null || connection.sent > 0 || now - connection.bornAt > this.hub.limits.sendMillis;
    if (useful) this.downSince = now;
    this.connection = null;
    this.ready = false;
    this.blocked = false;
    this.tellDown(error);
  }

  /** Fails what has waited too long for a connection. */
  expire(now: number): void {
    if (this.ready) return;
    const { sendMillis } = this.hub.limits;
    const late = (since: number): boolean => now - Math.max(since, this.downSince) >= sendMillis;
    while (this.waiters.length > 0 && late(this.waiters.peek()!.queuedAt)) {
      this.waiters.shift()!.settle.failed(this.unreachable(`within ${sendMillis} ms`));
    }
    if (this.outbox.messages > 0 && late(this.downSince))
      this.lose(this.unreachable(`within ${sendMillis} ms`));
  }

  unreachable(when: string): PeerUnreachableError {
    const why = this.fault === null ? "" : `: ${this.fault.message}`;
    const how =
      this.address === null ? "it has not dialled in, and no address is known for it" : `at ${this.address}`;
    const options = this.fault === null ? undefined : { cause: this.fault };
    return new PeerUnreachableError(`peer ${this.id} was not reached ${when} (${how})${why}`, options);
  }

  /** Gives up what is queued; reports what had been handed over. Returns its count. */
  lose(error: ZapError): number {
    const lost = this.outbox.clear(error);
    if (lost > 0) this.reportUndelivered(lost, error);
    return lost;
  }

  reportUndelivered(messages: number, cause: ZapError | null): void {
    this.hub.undelivered += messages;
    const what = messages === 1 ? "1 message was" : `${messages} messages were`;
    const why = cause === null ? "" : `: ${cause.message}`;
    const text = `${what} handed over for peer ${this.id} and not delivered${why}`;
    this.hub.fault(this.id, new UndeliveredError(text, messages, cause === null ? undefined : { cause }));
  }

  /** Rejects the `send` calls that wait, because the transport closes. */
  rejectWaiters(): void {
    for (const waiter of this.waiters.drain())
      waiter.settle.failed(new ClosedError("send: the transport was closed"));
    for (const waiter of this.connectWaiters) waiter(new ClosedError("connect: the transport was closed"));
    this.connectWaiters.clear();
  }
}
