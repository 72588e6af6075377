/**
 * Probes: what each transport would need of this host, and what was seen instead.
 *
 * What lives here: one file for each transport, and what several of them ask (`cuda.ts`, `packages.ts`). A probe reads
 * files through `../host.ts`; it opens no port, starts no process and changes nothing. Where nothing is missing among the files, `uma`
 * loads its shim and asks the device, which loads the vendor's library (`device.ts`), and `gpudirect` registers some memory of the GPU with the network
 * card, and lets go of both (`registration.ts`).
 * May import: the transport contract, `../host.ts`, wire (what an operator sets for it), memory, ffi, errors.
 * Start at `default.ts`, the shortest, then `prerequisite.ts`. What else a new transport takes is in `docs/contributing.md`.
 */
export { probeDefault } from "./default.ts";
export { probeDpdk } from "./dpdk.ts";
export { probeGpudirect } from "./gpudirect.ts";
export { probeUma } from "./uma.ts";
