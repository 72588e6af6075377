/**
 * Probes: what each transport would need of this host, and what was seen instead.
 *
 * What lives here: one file for each transport, and what several of them ask (`cuda.ts`, `packages.ts`). A probe reads
 * files through `../host.ts` and nothing else: it opens no port, loads no library, starts no process, changes nothing.
 * May import: the transport contract, `../host.ts`, ffi.
 * Start at `default.ts`, the shortest, then `prerequisite.ts`. To add a transport, add a file and a row in `../probe.ts`.
 */
export { probeDefault } from "./default.ts";
export { probeDpdk } from "./dpdk.ts";
export { probeGpudirect } from "./gpudirect.ts";
export { probeUma } from "./uma.ts";
