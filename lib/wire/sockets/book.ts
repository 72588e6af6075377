/** The peers of a node, by id. */
import type { Hub } from "./hub.ts";
import { Peer } from "./peer.ts";

export class PeerBook {
  private readonly hub: Hub;
  private readonly peers = new Map<string, Peer>();

  constructor(hub: Hub) {
    this.hub = hub;
  }

  find(id: string): Peer | undefined {
    return this.peers.get(id);
  }

  /** Finds or makes. */
  of(id: string): Peer {
    let peer = this.peers.get(id);
    if (peer === undefined) {
      peer = new Peer(id, this.hub);
      this.peers.set(id, peer);
    }
    return peer;
  }

  all(): Peer[] {
    return [...this.peers.values()];
  }

  /** Forgets a peer of which nothing is left: strangers' ids must not pile up. */
  forget(peer: Peer): void {
    if (peer.forgettable) this.peers.delete(peer.id);
  }

  /**
   * Addresses that `connect` has learnt are remembered as long as there are not more of them than `limits.connections`; then those
   * that were learnt first and are not in use are forgotten.
   */
  trim(): void {
    const idle = this.all().filter((peer) => peer.idle && !peer.configured);
    const spare = idle.length - this.hub.limits.connections;
    for (const peer of idle.slice(0, Math.max(0, spare))) this.peers.delete(peer.id);
  }

  clear(): void {
    this.peers.clear();
  }
}
