/** One remote node: the flow it is reached by, and the `send` calls that wait for room, for memory or for a flow. */
import { AbortedError, ClosedError, PeerUnreachableError, ZapError } from "../../errors/index.ts";
import type { BookPeer } from "../common/book.ts";
import { changedMessage } from "../common/sendable.ts";
import { settling, type Settle } from "../common/settle.ts";
import { WaitList, type Waiter } from "../common/waitlist.ts";
import type { Flow } from "./flow.ts";
import type { NativeHub } from "./hub.ts";

export interface SendWaiter extends Waiter {
  readonly message: Uint8Array;
  /** As it was when `send` was called. */
  readonly bytes: number;
  readonly queuedAt: number;
  readonly settle: Settle;
}

export class Peer implements BookPeer {
  readonly id: string;
  /** Where to dial it; null where it can only dial us. */
  address: string | null = null;
  /** Named in the configuration: dialled again whenever it is lost. */
  configured = false;
  /** What messages go out on. */
  flow: Flow | null = null;
  /** Why it was last not reachable. */
  fault: ZapError | null = null;
  /** Since when it has had no flow, milliseconds of `performance.now()`. */
  downSince = performance.now();
  /** Dial attempts since it was last connected for a while, when the last one failed, and when the next is due. */
  attempts = 0;
  failedDialAt = 0;
  nextDialAt = 0;
  dialling = false;
  protected readonly hub: NativeHub;
  protected readonly waiters = new WaitList<SendWaiter>();

  constructor(id: string, hub: NativeHub) {
    this.id = id;
    this.hub = hub;
  }

  get waiting(): number {
    return this.waiters.length;
  }

  get reached(): boolean {
    return this.flow !== null;
  }

  get wanted(): boolean {
    return this.waiters.length > 0;
  }

  get forgettable(): boolean {
    return this.address === null && this.idle;
  }

  get idle(): boolean {
    return this.flow === null && !this.dialling && this.waiters.length === 0;
  }

  /** The fast path of `send`: takes the message if that needs no waiting. */
  accept(message: Uint8Array): boolean {
    const { flow, hub } = this;
    if (flow === null || this.waiters.length > 0) return false;
    const { outbox } = hub;
    outbox.drain();
    if (!outbox.hasRoom(flow, message.length) || outbox.isInPlace(message)) return false;
    try {
      return outbox.copy(flow, message);
    } catch (error) {
      // It is thrown again where it can be told.
      if (error instanceof ZapError) return false;
      throw error;
    }
  }

  /** The slow path: a message to be sent in place, a full queue, no flow, or a signal to listen to. */
  enqueue(message: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted) return Promise.reject(new AbortedError("send", signal.reason));
    return new Promise<void>((resolve, reject) => {
      const settle = settling(resolve, reject, signal, (reason) => this.abort(waiter, reason));
      const queuedAt = performance.now();
      const waiter: SendWaiter = { state: "waiting", message, bytes: message.length, queuedAt, settle };
      this.waiters.push(waiter);
      this.admit();
      this.hub.outbox.turn();
    });
  }

  /** What was handed over already stays so: it resolves when it has come back. */
  private abort(waiter: SendWaiter, reason: unknown): void {
    if (!this.waiters.drop(waiter)) return;
    waiter.settle.failed(new AbortedError("send", reason));
    this.admit();
    this.hub.outbox.turn();
  }

  /** Moves waiting messages on while there is room, in order of asking. */
  admit(): void {
    const { outbox } = this.hub;
    while (this.flow !== null) {
      const waiter = this.waiters.peek();
      if (waiter === undefined) break;
      if (!this.hand(waiter, this.flow)) {
        outbox.waiting.add(this);
        return;
      }
    }
    outbox.waiting.delete(this);
  }

  /** False where the first in line has to wait on. */
  private hand(waiter: SendWaiter, flow: Flow): boolean {
    const { outbox } = this.hub;
    const { message, settle } = waiter;
    if (message.length !== waiter.bytes) {
      this.waiters.shift();
      settle.failed(changedMessage());
    } else if (!outbox.hasRoom(flow, message.length)) return false;
    else if (outbox.isInPlace(message)) {
      this.waiters.shift();
      outbox.lend(flow, message, settle);
    } else {
      try {
        if (!outbox.copy(flow, message)) return false;
      } catch (error) {
        if (!(error instanceof ZapError)) throw error;
        this.waiters.shift();
        settle.failed(error);
        return true;
      }
      this.waiters.shift();
      settle.done();
    }
    return true;
  }

  attach(flow: Flow): void {
    this.flow = flow;
    this.fault = null;
    this.admit();
    this.hub.outbox.turn();
  }

  /** The flow is gone. What waits, waits for the next one. */
  detach(error: ZapError | null): void {
    const now = performance.now();
    // A peer that comes and goes without taking anything does not put off the deadline of what waits for it.
    const idle = this.waiters.length === 0;
    if (this.flow !== null && (idle || now - this.flow.bornAt > this.hub.limits.sendMillis))
      this.downSince = now;
    this.flow = null;
    this.hub.outbox.waiting.delete(this);
    if (error !== null) this.fault = error;
  }

  /** Fails what has waited too long for a flow. */
  expire(now: number): void {
    if (this.flow !== null) return;
    const { sendMillis } = this.hub.limits;
    for (let waiter = this.waiters.peek(); waiter !== undefined; waiter = this.waiters.peek()) {
      if (now - Math.max(waiter.queuedAt, this.downSince) < sendMillis) return;
      this.waiters.shift();
      waiter.settle.failed(this.unreachable(`within ${sendMillis} ms`));
    }
  }

  unreachable(when: string): PeerUnreachableError {
    const why = this.fault === null ? "" : `: ${this.fault.message}`;
    const how =
      this.address === null ? "it has not dialled in, and no address is known for it" : `at ${this.address}`;
    const options = this.fault === null ? undefined : { cause: this.fault };
    return new PeerUnreachableError(`peer ${this.id} was not reached ${when} (${how})${why}`, options);
  }

  /** Rejects the `send` calls that wait, because the transport closes. */
  rejectWaiters(): void {
    this.hub.outbox.waiting.delete(this);
    for (const waiter of this.waiters.drain())
      waiter.settle.failed(new ClosedError("send: the transport was closed"));
  }
}
