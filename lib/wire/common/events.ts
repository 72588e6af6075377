/** Events on their way to the user: in order, and never from inside the code that noticed them. */
import type { WireEvent } from "../contract.ts";

export class EventQueue {
  private readonly onEvent: (event: WireEvent) => void;
  private readonly events: WireEvent[] = [];

  constructor(onEvent: (event: WireEvent) => void) {
    this.onEvent = onEvent;
  }

  /** Reports an event, in order, after the code that noticed it has finished. */
  emit(event: WireEvent): void {
    if (this.events.push(event) > 1) return;
    queueMicrotask(() => {
      for (let i = 0; i < this.events.length; i++) {
        const next = this.events[i];
        try {
          if (next !== undefined) this.onEvent(next);
        } catch (error) {
          // A listener's bug is its own; it must neither stop the wire nor vanish.
          reportError(error);
        }
      }
      this.events.length = 0;
    });
  }
}
