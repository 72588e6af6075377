/** The peers of a node, by id. */

export interface BookPeer {
  readonly id: string;
  /** Named in the configuration. */
  readonly configured: boolean;
  /** Nothing is connected, under way or waiting. */
  readonly idle: boolean;
  /** Nothing is left of it. */
  readonly forgettable: boolean;
}

export class PeerBook<P extends BookPeer> {
  private readonly addresses: number;
  private readonly make: (id: string) => P;
  private readonly peers = new Map<string, P>();

  /** `addresses`: of so many peers that are not in use the addresses are remembered. */
  constructor(addresses: number, make: (id: string) => P) {
    this.addresses = addresses;
    this.make = make;
  }

  find(id: string): P | undefined {
    return this.peers.get(id);
  }

  /** Finds or makes. */
  of(id: string): P {
    let peer = this.peers.get(id);
    if (peer === undefined) {
      peer = this.make(id);
      this.peers.set(id, peer);
    }
    return peer;
  }

  all(): P[] {
    return [...this.peers.values()];
  }

  /** Forgets a peer of which nothing is left: strangers' ids must not pile up. */
  forget(peer: P): void {
    if (peer.forgettable) this.peers.delete(peer.id);
  }

  /** Addresses that `connect` has learnt: those that were learnt first and are not in use are forgotten when there are too many. */
  trim(): void {
    const idle = this.all().filter((peer) => peer.idle && !peer.configured);
    const spare = idle.length - this.addresses;
    for (const peer of idle.slice(0, Math.max(0, spare))) this.peers.delete(peer.id);
  }

  clear(): void {
    this.peers.clear();
  }
}
