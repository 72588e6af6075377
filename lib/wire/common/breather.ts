/**
 * Lets the event loop turn. A loop that only awaits calls which have nothing to wait for would else keep timers and other sockets from
 * ever running.
 */

/** What may be handed over before the loop has to turn once. */
const MESSAGES = 8 * 1024;
const BYTES = 4 * 1024 * 1024;

export class Breather {
  /** Resolves in the next turn of the loop, while a share is used up; else null. */
  pending: Promise<void> | null = null;
  private messages = 0;
  private bytes = 0;
  private readonly after: () => void;

  /** `after` is called in the next turn, before those who wait go on. */
  constructor(after: () => void = () => {}) {
    this.after = after;
  }

  count(bytes: number): void {
    this.bytes += bytes;
    if ((++this.messages < MESSAGES && this.bytes < BYTES) || this.pending !== null) return;
    this.pending = new Promise((resolve) => {
      setImmediate(() => {
        this.pending = null;
        this.messages = 0;
        this.bytes = 0;
        this.after();
        resolve();
      });
    });
  }
}
