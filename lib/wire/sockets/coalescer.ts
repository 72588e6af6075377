/**
 * When queued frames go to the kernel: at once if they are many, else when the caller pauses.
 *
 * There is no timer in it. A round is queued behind the caller's own microtasks; as long as these bring new messages, they
 * gather, and after `IDLE_ROUNDS` rounds without one they go out, still in the same turn of the event loop.
 */
import type { Peer } from "./peer.ts";

/** Queued bytes at which frames go out at once. */
const FLUSH_BYTES = 240 * 1024;
/**
 * Flushes in one turn of the event loop after which the next `send` waits for the next turn. A loop that only sends, to a peer
 * that keeps up, would otherwise keep timers and other sockets from ever running.
 */
const FLUSHES_PER_TURN = 16;
/** A loop that awaits each `send` comes back within two. */
const IDLE_ROUNDS = 4;

export class Coalescer {
  private readonly dirty: Peer[] = [];
  private running = false;
  private messages = 0;
  private seen = 0;
  private idleRounds = 0;
  private flushes = 0;
  /** Pending while this turn has had its share; null otherwise. */
  breather: Promise<void> | null = null;

  /** A message was queued for `peer`. */
  touch(peer: Peer): void {
    if (peer.outbox.bytes >= FLUSH_BYTES) {
      peer.flush();
      this.flushed();
      return;
    }
    this.messages++;
    if (!peer.dirty) {
      peer.dirty = true;
      this.dirty.push(peer);
    }
    if (this.running) return;
    this.running = true;
    this.seen = this.messages;
    this.idleRounds = 0;
    queueMicrotask(this.round);
  }

  private flushed(): void {
    if (++this.flushes === 1) {
      setImmediate(() => {
        this.flushes = 0;
        this.breather = null;
      });
    } else if (this.flushes === FLUSHES_PER_TURN) {
      this.breather = new Promise((resolve) => setImmediate(resolve));
    }
  }

  private readonly round = (): void => {
    if (this.messages !== this.seen) {
      this.seen = this.messages;
      this.idleRounds = 0;
      queueMicrotask(this.round);
    } else if (++this.idleRounds < IDLE_ROUNDS) queueMicrotask(this.round);
    else {
      this.running = false;
      for (const peer of this.dirty) {
        peer.dirty = false;
        peer.flush();
      }
      this.dirty.length = 0;
    }
  };
}
