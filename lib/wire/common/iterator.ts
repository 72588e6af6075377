/** `for await` over what arrives. Ends when the wire is closed; leaving the loop leaves the wire open and loses no message. */
import type { Envelope } from "../contract.ts";
import type { RecvLine, RecvWaiter } from "./recv-line.ts";

const DONE: IteratorResult<Envelope> = { done: true, value: undefined };

export class EnvelopeIterator implements AsyncIterator<Envelope> {
  private readonly line: RecvLine;
  /** Calls of `next` that wait, and perhaps some that do not any more. */
  private waits: RecvWaiter[] = [];
  private left = false;

  constructor(line: RecvLine) {
    this.line = line;
  }

  next(): Promise<IteratorResult<Envelope>> {
    const { line } = this;
    if (this.left) return Promise.resolve(DONE);
    const queued = line.take();
    if (queued !== undefined) return Promise.resolve({ done: false, value: queued });
    if (line.isClosed) return Promise.resolve(DONE);
    return new Promise((resolve) => {
      const waiter: RecvWaiter = {
        state: "waiting",
        resolve: (value) => resolve({ done: false, value }),
        // The one reason is that the wire was closed.
        reject: () => resolve(DONE),
      };
      this.remember(waiter);
      line.enlist(waiter);
    });
  }

  return(): Promise<IteratorResult<Envelope>> {
    this.left = true;
    for (const waiter of this.waits) this.line.giveUp(waiter);
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
