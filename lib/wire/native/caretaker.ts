/** Calls for a look at everything that depends on time. It is also what keeps a process alive while the wire is open. */
import type { Limits } from "../settings.ts";

/** Between two rounds, milliseconds; limits below twice the longer one are looked at more often. */
const PERIOD_MILLIS_MIN = 5;
const PERIOD_MILLIS_MAX = 100;

export class Caretaker {
  private readonly timer: Timer;

  constructor(limits: Limits, round: (now: number) => void) {
    const { sendMillis, reconnectMinMillis } = limits;
    const shortest = Math.min(sendMillis, reconnectMinMillis);
    const period = Math.max(PERIOD_MILLIS_MIN, Math.min(PERIOD_MILLIS_MAX, shortest / 2));
    this.timer = setInterval(() => round(performance.now()), period);
  }

  stop(): void {
    clearInterval(this.timer);
  }
}
