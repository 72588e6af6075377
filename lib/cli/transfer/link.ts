/** The sender's side of a connection to one receiver: its receipts, and whether it is still there. */
import { parse, type Transport } from "../../index.ts";
import { CommandError } from "./io.ts";
import { readFileMessage, type FileReceipt } from "./messages.ts";

/** Fires when nothing more can come of something: the caller's own signal, a lost receiver, or too long without a `touch`. */
export class Watch {
  readonly signal: AbortSignal;
  private readonly controller = new AbortController();
  private readonly outer: AbortSignal;
  private readonly onOuter: () => void;
  private readonly timer: Timer;
  private touchedAt = performance.now();

  constructor(outer: AbortSignal, millis: number) {
    this.signal = this.controller.signal;
    this.outer = outer;
    this.onOuter = () => this.controller.abort(outer.reason);
    if (outer.aborted) this.onOuter();
    outer.addEventListener("abort", this.onOuter, { once: true });
    this.timer = setInterval(
      () => {
        if (performance.now() - this.touchedAt < millis) return;
        const text = `nothing moved for ${millis / 1000} s: the receiver does not answer, or takes no files`;
        this.controller.abort(new CommandError(text));
      },
      Math.max(10, Math.min(500, millis / 4)),
    );
  }

  touch(): void {
    this.touchedAt = performance.now();
  }

  /** Waits for `promise`, but no longer than the signal is quiet; rejects with the signal's reason then. */
  async race<T>(promise: Promise<T>): Promise<T> {
    let onAbort = (): void => {};
    const aborted = new Promise<never>((_, reject) => {
      onAbort = () => reject(this.signal.reason);
      this.signal.addEventListener("abort", onAbort, { once: true });
      if (this.signal.aborted) onAbort();
    });
    try {
      return await Promise.race([promise, aborted]);
    } catch (error) {
      // A `send` rejects with an error about the abort; what caused the abort says more.
      this.check();
      throw error;
    } finally {
      this.signal.removeEventListener("abort", onAbort);
    }
  }

  private check(): void {
    if (this.signal.aborted) throw this.signal.reason;
  }

  stop(): void {
    clearInterval(this.timer);
    this.outer.removeEventListener("abort", this.onOuter);
  }
}

/** The receipts of one transfer, in the order in which they come. */
export class Receipts {
  private readonly arrived: FileReceipt[] = [];
  private waiter: ((receipt: FileReceipt) => void) | null = null;

  put(receipt: FileReceipt): void {
    if (this.waiter === null) this.arrived.push(receipt);
    else this.waiter(receipt);
    this.waiter = null;
  }

  /** The next receipt, if it is there already. */
  poll(): FileReceipt | undefined {
    return this.arrived.shift();
  }

  next(): Promise<FileReceipt> {
    const receipt = this.poll();
    if (receipt !== undefined) return Promise.resolve(receipt);
    return new Promise((resolve) => (this.waiter = resolve));
  }
}

export class Link {
  readonly transport: Transport;
  /** Node id of the receiver. */
  readonly peer: string;
  private readonly open = new Map<bigint, Receipts>();

  constructor(transport: Transport, peer: string) {
    this.transport = transport;
    this.peer = peer;
  }

  /** Sorts what comes in until the transport is closed. Whoever else sends something here is not listened to. */
  async run(): Promise<void> {
    for await (const envelope of this.transport) {
      try {
        const known = envelope.peer === this.peer ? readFileMessage(parse(envelope.message)) : null;
        if (known?.kind !== "receipt") continue;
        // The hash is a view of the envelope.
        this.open.get(known.id)?.put({ ...known, hash: known.hash.slice() });
      } finally {
        envelope.release();
      }
    }
  }

  /** The receipts of a transfer that is about to begin. */
  expect(id: bigint): Receipts {
    const receipts = new Receipts();
    this.open.set(id, receipts);
    return receipts;
  }

  forget(id: bigint): void {
    this.open.delete(id);
  }

  send(message: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.transport.send(this.peer, message, { signal });
  }
}
