/** One flow: a connection of the native node, by its number for it. It belongs to one peer, and a peer may have two for a moment. */
import type { Lease, Leases } from "../common/lease.ts";
import type { Peer } from "./peer.ts";

export class Flow {
  readonly number: number;
  readonly peer: Peer;
  /** Where the peer is. */
  readonly address: string;
  readonly dialled: boolean;
  /** Milliseconds of `performance.now()`. */
  readonly bornAt = performance.now();
  /** Accepted and not come back. */
  messages = 0;
  bytes = 0;
  /** Messages that came back undelivered: those whose `send` had resolved, those of them that were reported, and the others. */
  failed = 0;
  reported = 0;
  rejected = 0;
  /** Once it is down: entries of the hand-off ring that may be its. */
  until = Infinity;
  private leased: Lease | null = null;

  constructor(number: number, peer: Peer, address: string, dialled: boolean) {
    this.number = number;
    this.peer = peer;
    this.address = address;
    this.dialled = dialled;
  }

  lease(leases: Leases): Lease {
    return (this.leased ??= leases.of(this.peer.id));
  }

  /** The envelopes made from now on are watched apart from those before. */
  nextLease(): void {
    this.leased = null;
  }
}
