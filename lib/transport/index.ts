/**
 * Transports: a wire over a memory, and the choice among them.
 *
 * What lives here: the contract (`contract.ts`), the transports that there are (`registry.ts`), what this host can run (`probe.ts`,
 * `probes/`, `host.ts`), which transport that means (`resolve.ts`), opening it (`pick.ts`), and one file per transport (`default.ts`,
 * `uma.ts`, `dpdk.ts`, `gpudirect.ts` with `gpudirect-memory.ts`, over what they share in `wire-transport.ts`). Beside them `settings.ts` (are the environment's values usable) and
 * `log.ts` (lines on standard error).
 * May import: wire, memory, ffi, settings, errors.
 * Start at `contract.ts`, then `pick.ts`.
 */
export {
  TRANSPORT_NAMES,
  type Capabilities,
  type CloseReport,
  type Envelope,
  type Prerequisite,
  type Probe,
  type Selection,
  type Transport,
  type TransportEvent,
  type TransportName,
  type TransportOptions,
  type TransportStats,
} from "./contract.ts";
export { pick, type PickOptions } from "./pick.ts";
export { probe, probeAll, registered } from "./probe.ts";
export { resolveSelection, type ResolveOptions } from "./resolve.ts";
