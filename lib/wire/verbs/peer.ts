/** One remote node: reached by a queue pair, or over the sockets wire alone, as it can. */
import type { ZapError } from "../../errors/index.ts";
import { Peer } from "../native/peer.ts";
import type { Pair } from "./pairs.ts";

export class VerbsPeer extends Peer {
  /** What is being brought up with it, or is up. */
  pair: Pair | null = null;
  /** It was last seen as a node that cannot do RDMA: its messages are the sockets wire's. */
  plain = false;
  /** A connection of the sockets wire is there, and carries messages. */
  plainUp = false;
  /** When a queue pair last failed to come up, milliseconds of `performance.now()`. */
  failedAt = 0;
  /** `connect` calls that wait for the queue pair. */
  readonly connectWaiters = new Set<(error: ZapError | null) => void>();

  override get idle(): boolean {
    return super.idle && this.pair === null && !this.plainUp && this.connectWaiters.size === 0;
  }

  /** Tells every `connect` call that waits. */
  settleConnects(error: ZapError | null): void {
    for (const waiter of this.connectWaiters) waiter(error);
    this.connectWaiters.clear();
  }

  /** Gives what waits to somebody else, in order. */
  handOn(send: (message: Uint8Array) => Promise<void>): void {
    this.hub.outbox.waiting.delete(this);
    for (const { message, settle } of this.waiters.drain()) send(message).then(settle.done, settle.failed);
  }
}
