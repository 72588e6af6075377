/** Calls that wait for memory, in order of asking. One that gives up is taken out in constant time, however many wait. */
import { AbortedError } from "../errors/index.ts";
import type { SlabBuffer } from "./buffer.ts";

export interface Waiter {
  readonly size: number;
  /** Where the buffer was asked for; null but in debug mode. */
  readonly stack: string | null;
  readonly resolve: (buffer: SlabBuffer) => void;
  readonly reject: (error: unknown) => void;
  before: Waiter | null;
  after: Waiter | null;
}

export class Waiters {
  length = 0;
  /** The one that has waited longest. */
  first: Waiter | null = null;
  private last: Waiter | null = null;

  /** Puts a call in line. `left` is called when it has given up: those behind it may have their turn now. */
  wait(
    size: number,
    stack: string | null,
    signal: AbortSignal | undefined,
    left: () => void,
  ): Promise<SlabBuffer> {
    const { promise, resolve, reject } = Promise.withResolvers<SlabBuffer>();
    if (signal === undefined) {
      this.push({ size, stack, resolve, reject, before: null, after: null });
      return promise;
    }
    const onAbort = (): void => {
      this.remove(waiter);
      reject(new AbortedError("alloc", signal.reason));
      left();
    };
    const settled = (): void => signal.removeEventListener("abort", onAbort);
    const waiter: Waiter = {
      size,
      stack,
      resolve: (buffer) => (settled(), resolve(buffer)),
      reject: (error) => (settled(), reject(error)),
      before: null,
      after: null,
    };
    signal.addEventListener("abort", onAbort, { once: true });
    this.push(waiter);
    return promise;
  }

  /** Takes out one that is in line, and nobody else's place changes. */
  remove(waiter: Waiter): void {
    const { before, after } = waiter;
    if (before === null) this.first = after;
    else before.after = after;
    if (after === null) this.last = before;
    else after.before = before;
    this.length--;
  }

  private push(waiter: Waiter): void {
    waiter.before = this.last;
    if (this.last === null) this.first = waiter;
    else this.last.after = waiter;
    this.last = waiter;
    this.length++;
  }
}
