/**
 * Wires: ways to move a message between peers. One folder per wire; what they share lies here.
 *
 * What lives here: the contract (`contract.ts`), the settings (`settings.ts`), what wires have in common
 * (`common/`), the sockets wire (`sockets/`), the dpdk wire (`dpdk/`), the verbs wire (`verbs/`), and what those two have in common
 * (`native/`).
 * May import: memory, message, ffi, settings, errors.
 * Start at `contract.ts`, then `sockets/index.ts`.
 */
export type {
  CloseReport,
  Envelope,
  PortStats,
  QueueStats,
  RdmaStats,
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
} from "./dpdk/index.ts";
export type { ReceivedOnDevice, Waking } from "./native/index.ts";
export { DEFAULT_LIMITS, resolveLimits, type Limits, type Pem, type TlsOptions } from "./settings.ts";
export {
  gpudirectEnvironment,
  resolveVerbsOptions,
  VerbsEngine,
  VerbsWire,
  type GpudirectEnvironment,
  type MethodChoice,
  type OwnMemory,
  type VerbsOptions,
} from "./verbs/index.ts";
export { Poller, SlabMemory, SocketsWire, STREAM_BYTES } from "./sockets/index.ts";
