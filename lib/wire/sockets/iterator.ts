/** `for await` over what arrives. Ends when the wire is closed; leaving the loop leaves the wire open and loses no message. */
import type { Envelope } from "../contract.ts";
import type { Inbox, RecvWaiter } from "./inbox.ts";

const DONE: IteratorResult<Envelope> = { done: true, value: undefined };

export class EnvelopeIterator implements AsyncIterator<Envelope> {
  private readonly inbox: Inbox;
  /** Calls of `next` that wait, and perhaps some that do not any more. */
  private waits: RecvWaiter[] = [];
  private left = false;

  constructor(inbox: Inbox) {
    this.inbox = inbox;
  }

  next(): Promise<IteratorResult<Envelope>> {
    const { inbox } = this;
    if (this.left) return Promise.resolve(DONE);
    const queued = inbox.take();
    if (queued !== undefined) return Promise.resolve({ done: false, value: queued });
    if (inbox.isClosed) return Promise.resolve(DONE);
    return new Promise((resolve) => {
      const waiter: RecvWaiter = {
        state: "waiting",
        resolve: (value) => resolve({ done: false, value }),
        // The one reason is that the wire was closed.
        reject: () => resolve(DONE),
      };
      this.remember(waiter);
      inbox.enlist(waiter);
    });
  }

  return(): Promise<IteratorResult<Envelope>> {
    this.left = true;
    for (const waiter of this.waits) this.inbox.giveUp(waiter);
    this.waits = [];
    return Promise.resolve(DONE);
  }

  /** A plain loop has one call at a time: then this is one assignment. */
  private remember(waiter: RecvWaiter): void {
    const { waits } = this;
    if (waits.length === 1 && waits[0]?.state !== "waiting") waits[0] = waiter;
    else this.waits = [...waits.filter(({ state }) => state === "waiting"), waiter];
  }
}
