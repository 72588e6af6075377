/** The `recv` calls that wait for messages. Each message goes to exactly one call, in order of asking. */
import { AbortedError, ClosedError } from "../../errors/index.ts";
import type { Envelope } from "../contract.ts";
import { WaitList, type Waiter } from "./waitlist.ts";

export interface RecvWaiter extends Waiter {
  readonly resolve: (envelope: Envelope) => void;
  readonly reject: (error: Error) => void;
}

/** What every wire's inbox is to those who ask it for messages. */
export abstract class RecvLine {
  protected readonly waiters = new WaitList<RecvWaiter>();
  private closed = false;

  /** The next envelope where that needs no waiting and overtakes nobody who waits. */
  abstract take(): Envelope | undefined;

  /** Somebody has begun to wait. */
  protected waited(): void {}

  get waiting(): number {
    return this.waiters.length;
  }

  get isClosed(): boolean {
    return this.closed;
  }

  /** Puts a call in line. Only when `take` has nothing and the line is open. */
  enlist(waiter: RecvWaiter): void {
    this.waiters.push(waiter);
    this.waited();
  }

  /** Rejects a call that still waits; no message is lost. */
  giveUp(waiter: RecvWaiter): void {
    if (this.waiters.drop(waiter)) waiter.reject(new ClosedError("recv: the loop was left"));
  }

  recv(signal: AbortSignal | undefined): Promise<Envelope> {
    if (signal?.aborted) return Promise.reject(new AbortedError("recv", signal.reason));
    const envelope = this.take();
    if (envelope !== undefined) return Promise.resolve(envelope);
    if (this.closed) return Promise.reject(new ClosedError("recv: the transport is closed"));
    return new Promise<Envelope>((resolve, reject) => {
      if (signal === undefined) return this.enlist({ state: "waiting", resolve, reject });
      const onAbort = (): void => {
        if (this.waiters.drop(waiter)) reject(new AbortedError("recv", signal.reason));
      };
      const settled = (): void => signal.removeEventListener("abort", onAbort);
      const waiter: RecvWaiter = {
        state: "waiting",
        resolve: (given) => (settled(), resolve(given)),
        reject: (error) => (settled(), reject(error)),
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.enlist(waiter);
    });
  }

  /** Rejects everybody who waits, and whoever asks from now on. */
  protected closeLine(): void {
    this.closed = true;
    for (const waiter of this.waiters.drain())
      waiter.reject(new ClosedError("recv: the transport was closed"));
  }
}
