/**
 * The verbs wire: ZAP messages over RDMA, by reliable connections between queue pairs. The queue pairs are brought up over a sockets wire,
 * so that node ids, TLS, allow-lists, dialling and coming back are its; a node that cannot do RDMA is reached over that wire alone.
 * Everything below a whole message is the native side's (`shim/include/zap_gpudirect.h`).
 *
 * What lives here, from the memory up:
 *   settings.ts    what an operator sets; options.ts brings it and the caller's options together
 *   structures.ts  the native side's structures
 *   engine.ts      the native node: opened, asked
 *   said.ts        what two nodes say to each other on a link of the sockets wire
 *   peer.ts        one remote node
 *   pairs.ts       the queue pairs: brought up, and what becomes of them; reasons.ts: why they end
 *   stats.ts       what is counted; port-counters.ts: what a port's driver counts
 *   wire.ts        the node
 * What the dpdk wire has as well (rings, memory, messages in and out) is in `../native`, what all wires have in `../common`.
 * May import: memory, message, ffi, settings, errors, ../native, ../sockets, ../common,
 * and the contract and settings of all wires.
 * Start at `wire.ts`, then `pairs.ts`.
 */
export { VerbsEngine, type VerbsHost } from "./engine.ts";
export { resolveVerbsOptions, type VerbsOptions } from "./options.ts";
export { gpudirectEnvironment, type GpudirectEnvironment, type MethodChoice } from "./settings.ts";
export type { OwnMemory } from "./structures.ts";
export { VerbsWire, type VerbsParts } from "./wire.ts";
