/**
 * Work on the calling thread in stretches: between two of them the event loop gets to run everything that waits for it. All batches of a thread
 * share one budget for each turn of the loop, and wait in line for the next turn where it is used up.
 */

/**
 * What may be used of one turn of the event loop, nanoseconds. Of the 10 ms that are promised a quarter: what a message or a socket sets off and the
 * turn after it can follow each other without a timer in between, and estimates can be wrong.
 */
export const TURN_NANOS = 2_500_000;

interface Waiting {
  readonly nanos: number;
  readonly enter: () => void;
}

export class Stretches {
  #used = 0;
  #turning = false;
  readonly #waiting: Waiting[] = [];
  readonly #turn = (): void => {
    this.#turning = false;
    this.#used = 0;
    for (let next = this.#waiting[0]; next !== undefined && this.#fits(next.nanos); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#used += next.nanos;
      next.enter();
    }
    // Once more where something was used, so that the turn after this one begins with nothing used.
    if (this.#waiting.length > 0 || this.#used > 0) this.#schedule();
  };

  /**
   * Asks for a stretch of about `nanos`. Null: go ahead at once; else a promise to wait for. Who went ahead calls `leave` with the same number
   * and what it really took, before it waits for anything else.
   */
  enter(nanos: number): Promise<void> | null {
    if (this.#waiting.length === 0 && this.#fits(nanos)) {
      this.#used += nanos;
      this.#schedule();
      return null;
    }
    return new Promise((enter) => {
      this.#waiting.push({ nanos, enter });
      this.#schedule();
    });
  }

  leave(nanos: number, taken: number): void {
    this.#used += taken - nanos;
  }

  /** How many wait for a stretch. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** The first of a turn is let in whatever it takes. */
  #fits(nanos: number): boolean {
    return this.#used <= 0 || this.#used + nanos <= TURN_NANOS;
  }

  #schedule(): void {
    if (this.#turning) return;
    this.#turning = true;
    setImmediate(this.#turn);
  }
}
