/**
 * Wires: ways to move a message between peers. One folder per wire; what they share lies here.
 *
 * What lives here: the contract (`contract.ts`), the settings (`settings.ts`), what wires have in common
 * (`common/`), the sockets wire (`sockets/`), the dpdk wire (`dpdk/`).
 * May import: memory, message, ffi, settings, errors.
 * Start at `contract.ts`, then `sockets/index.ts`.
 */
export type {
  CloseReport,
  Envelope,
  PortStats,
  QueueStats,
  WireEvent,
  WireOptions,
  WireStats,
} from "./contract.ts";
export {
  DpdkWire,
  dpdkEnvironment,
  Engine,
  hugepageBytesNeeded,
  resolveDpdkOptions,
  type DpdkEnvironment,
  type DpdkOptions,
  type Waking,
} from "./dpdk/index.ts";
export { DEFAULT_LIMITS, resolveLimits, type Limits, type Pem, type TlsOptions } from "./settings.ts";
export { Poller, SlabMemory, SocketsWire, STREAM_BYTES } from "./sockets/index.ts";
