/**
 * Wires: ways to move a message between peers. One folder per wire; what they share lies here.
 *
 * What lives here: the contract (`contract.ts`), the settings (`settings.ts`), the sockets wire (`sockets/`).
 * May import: memory, message, ffi, errors.
 * Start at `contract.ts`, then `sockets/index.ts`.
 */
export type { CloseReport, Envelope, WireEvent, WireOptions, WireStats } from "./contract.ts";
export { DEFAULT_LIMITS, resolveLimits, type Limits, type Pem, type TlsOptions } from "./settings.ts";
export { Poller, SlabMemory, SocketsWire, STREAM_BYTES } from "./sockets/index.ts";
