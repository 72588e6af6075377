/**
 * The transports of this build: one row each, and all that `pick` and the probes know of them. A further transport is a row here, its name
 * and rank in `TRANSPORT_NAMES` (`contract.ts`), its operating systems in `registered` (`probe.ts`), a probe (`probes/index.ts`) and what
 * opens it.
 */
import type { Probe, Selection, Transport, TransportName, TransportOptions } from "./contract.ts";
import { openDefault } from "./default.ts";
import { openDpdk } from "./dpdk.ts";
import { openGpudirect } from "./gpudirect.ts";
import type { Host } from "./host.ts";
import { probeDefault, probeDpdk, probeGpudirect, probeUma } from "./probes/index.ts";
import { openUma } from "./uma.ts";

export interface RegistryRow {
  readonly wire: string;
  /** Shown where the probe itself fails. */
  readonly memory: string;
  readonly probe: (host: Host) => Promise<Probe>;
  /** Opens it; null where this build carries no data plane for it. Rejects with `NotAvailableError` where `pick` should go on. */
  readonly open: ((options: TransportOptions, selection: Selection, host: Host) => Promise<Transport>) | null;
}

export type Registry = Readonly<Record<TransportName, RegistryRow>>;

export const REGISTRY: Registry = {
  gpudirect: { wire: "verbs", memory: "cuda", probe: probeGpudirect, open: openGpudirect },
  dpdk: { wire: "dpdk", memory: "hugepages", probe: probeDpdk, open: openDpdk },
  uma: { wire: "sockets", memory: "none", probe: probeUma, open: openUma },
  default: { wire: "sockets", memory: "heap", probe: probeDefault, open: openDefault },
};
