/** Envelopes that were collected without `release()`, found without watching each. */

/** How many envelopes of a lease were not released yet; outlives the lease, to be read when that is collected. */
export interface LeaseCount {
  readonly peerId: string;
  held: number;
}

/**
 * What the envelopes of one connection and one short span of time share, so that the collector tells when they are all gone:
 * watching each envelope would cost more than receiving it.
 */
export class Lease {
  readonly count: LeaseCount;

  constructor(peerId: string) {
    this.count = { peerId, held: 0 };
  }
}

export class Leases {
  private readonly registry: FinalizationRegistry<LeaseCount>;

  /** `unreleased` is told of counts above 0 whose lease was collected. */
  constructor(unreleased: (count: LeaseCount) => void) {
    this.registry = new FinalizationRegistry((count) => {
      if (count.held > 0) unreleased(count);
    });
  }

  of(peerId: string): Lease {
    const lease = new Lease(peerId);
    this.registry.register(lease, lease.count);
    return lease;
  }
}
