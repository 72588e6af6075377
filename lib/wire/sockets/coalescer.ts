/**
 * When queued frames go to the kernel. There is no timer in it.
 *
 * The first message of a turn of the event loop goes out at once. Those that follow in the same turn gather: a round is queued
 * behind the caller's own microtasks, and as long as these bring new messages it queues itself again; after `IDLE_ROUNDS` rounds
 * without one, or when they are many, they go out.
 */
import type { Peer } from "./peer.ts";

/** Bytes queued for one peer at which they go out at once. */
const FLUSH_BYTES = 240 * 1024;
/** A loop that awaits each `send` comes back within two. */
const IDLE_ROUNDS = 4;
/**
 * What one turn of the event loop may hand over, after which the next `send` waits for the next turn. A loop that only sends, to
 * peers that keep up, would otherwise keep timers and other sockets from ever running.
 */
const TURN_FLUSHES = 16;
const TURN_MESSAGES = 8 * 1024;

export class Coalescer {
  /** Pending while this turn has had its share; null otherwise. */
  breather: Promise<void> | null = null;
  private readonly dirty: Peer[] = [];
  private running = false;
  private messages = 0;
  private seen = 0;
  private idleRounds = 0;
  private turnFlushes = 0;
  private turnMessages = 0;

  /** A message was queued for `peer`. */
  touch(peer: Peer): void {
    this.messages++;
    if (++this.turnMessages >= TURN_MESSAGES) this.breathe();
    if (peer.outbox.bytes >= FLUSH_BYTES) {
      peer.flush();
      this.flushed();
    } else if (this.start()) peer.flush();
    else if (!peer.dirty) {
      peer.dirty = true;
      this.dirty.push(peer);
    }
  }

  /** A write of the size of a flush was made. */
  flushed(): void {
    // The rounds must see that the turn still brings something.
    this.messages++;
    if (++this.turnFlushes >= TURN_FLUSHES) this.breathe();
    this.start();
  }

  /** Begins the rounds of a turn; false where they run already. */
  private start(): boolean {
    if (this.running) return false;
    this.running = true;
    this.seen = this.messages;
    this.idleRounds = 0;
    queueMicrotask(this.round);
    return true;
  }

  private readonly round = (): void => {
    if (this.messages !== this.seen) {
      this.seen = this.messages;
      this.idleRounds = 0;
      queueMicrotask(this.round);
    } else if (++this.idleRounds < IDLE_ROUNDS) queueMicrotask(this.round);
    else {
      this.running = false;
      this.turnMessages = 0;
      this.turnFlushes = 0;
      this.flush();
    }
  };

  private breathe(): void {
    this.flush();
    this.turnMessages = 0;
    this.turnFlushes = 0;
    this.breather ??= new Promise((resolve) => {
      setImmediate(() => {
        this.breather = null;
        resolve();
      });
    });
  }

  private flush(): void {
    for (const peer of this.dirty) {
      peer.dirty = false;
      peer.flush();
    }
    this.dirty.length = 0;
  }
}
