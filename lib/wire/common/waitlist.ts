/** Calls that wait their turn. One that gives up is taken out in constant time, however many wait. */
import { Fifo } from "./fifo.ts";

export interface Waiter {
  /** Kept by the list: it waits, it has given up, or its turn has come. */
  state: "waiting" | "dropped" | "taken";
}

export class WaitList<T extends Waiter> {
  /** Those that still wait. */
  length = 0;
  private readonly queue = new Fifo<T>();

  push(waiter: T): void {
    this.queue.push(waiter);
    this.length++;
  }

  /** The one that has waited longest. */
  peek(): T | undefined {
    for (let first = this.queue.peek(); first?.state === "dropped"; first = this.queue.peek())
      this.queue.shift();
    return this.queue.peek();
  }

  shift(): T | undefined {
    const first = this.peek();
    if (first === undefined) return undefined;
    this.queue.shift();
    this.length--;
    first.state = "taken";
    return first;
  }

  /** Takes one out, if it still waits; says whether it did. */
  drop(waiter: T): boolean {
    if (waiter.state !== "waiting") return false;
    waiter.state = "dropped";
    this.length--;
    // Those that gave up must not outnumber those that wait by much, or a loop of both would grow the queue for ever.
    if (this.queue.length > 2 * this.length + 32) {
      const waiting = this.queue.drain().filter(({ state }) => state === "waiting");
      for (const each of waiting) this.queue.push(each);
    }
    return true;
  }

  /** Takes everybody out, in order. */
  drain(): T[] {
    const waiting = this.queue.drain().filter(({ state }) => state === "waiting");
    for (const each of waiting) each.state = "taken";
    this.length = 0;
    return waiting;
  }
}
