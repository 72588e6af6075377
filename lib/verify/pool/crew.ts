/** The workers: started when there is something to do, let go when there is not, and replaced when one is lost. */
import { PROTOCOL, type FromWorker, type SliceMessage, type ToWorker } from "./protocol.ts";

export interface Member {
  readonly id: number;
  /** The slices that it was sent and that are not over. */
  readonly slices: Set<number>;
}

export interface CrewEvents {
  /** Something has changed about a slice. */
  readonly settled: (slice: number) => void;
  /** A worker is gone, or must be taken for gone; `begun` is false for one that never came up. */
  readonly lost: (member: Member, why: string, begun: boolean) => void;
  /** The thread of a worker that was lost or ended has come to its end, and does nothing any more. */
  readonly gone: (member: Member) => void;
}

interface Hand extends Member {
  readonly worker: Worker;
  begun: boolean;
}

export class Crew {
  readonly #path: string;
  readonly #most: number;
  readonly #events: CrewEvents;
  readonly #hands = new Map<number, Hand>();
  #lastId = 0;

  constructor(path: string, most: number, events: CrewEvents) {
    this.#path = path;
    this.#most = most;
    this.#events = events;
  }

  get size(): number {
    return this.#hands.size;
  }

  /** Whether there is a worker that came up. */
  get begun(): boolean {
    return [...this.#hands.values()].some(({ begun }) => begun);
  }

  /**
   * Sends a slice to `many` workers, those with the least to do, of whom as many are started as are missing. Returns them. Throws what the
   * runtime throws where it makes no worker at all.
   */
  send(message: SliceMessage, many: number): Member[] {
    const wanted = Math.min(many, this.#most);
    try {
      while (this.#hands.size < wanted) this.#start();
    } catch (error) {
      if (this.#hands.size === 0) throw error;
    }
    const chosen = [...this.#hands.values()].sort((a, b) => a.slices.size - b.slices.size).slice(0, wanted);
    for (const { worker, slices } of chosen) {
      slices.add(message.slice);
      worker.postMessage(message);
    }
    return chosen;
  }

  /** Ends all workers. Whatever they had is given up. */
  end(): void {
    for (const hand of [...this.#hands.values()]) this.#dismiss(hand);
  }

  #start(): void {
    this.#lastId += 1;
    // Without a word they get what the process was started with, and not what the program has made of it.
    const worker = new Worker(this.#path, { env: process.env as Record<string, string> });
    const hand: Hand = { id: this.#lastId, slices: new Set(), worker, begun: false };
    this.#hands.set(hand.id, hand);
    const lose = (why: string): void => {
      if (!this.#hands.has(hand.id)) return;
      this.#dismiss(hand);
      this.#events.lost(hand, why, hand.begun);
    };
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if (!this.#hands.has(hand.id)) return;
      if ("slice" in data) this.#events.settled(data.slice);
      else if ("failed" in data) lose(data.failed);
      else if (data.ready === PROTOCOL) hand.begun = true;
      else lose("the worker's code is of another version of this package");
    };
    worker.onerror = (event) => {
      event.preventDefault();
      lose(firstLine(String(event.message)));
    };
    worker.addEventListener("close", () => {
      lose("its thread ended");
      this.#events.gone(hand);
    });
    // Workers hold no process: while a batch is under way, the pool does.
    worker.unref();
    worker.postMessage({ id: hand.id } satisfies ToWorker);
  }

  #dismiss({ id, worker }: Hand): void {
    this.#hands.delete(id);
    worker.terminate();
  }
}

/** Of an error that a worker reports, with its source lines: the one that says what it is. */
function firstLine(message: string): string {
  const lines = message.split("\n").filter((line) => line.trim() !== "");
  return (lines.find((line) => /^\s*\w*(error|exception)\b/i.test(line)) ?? lines[0] ?? "an error").trim();
}
