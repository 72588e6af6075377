/**
 * The dpdk wire: ZAP messages over UDP, on a network device that this process drives itself. The format on the wire and what it promises are
 * in `docs/wire-dpdk.md`; everything below a whole message is the native side's (`shim/include/zap_dpdk.h`).
 *
 * What lives here, from the memory up:
 *   ip.ts          addresses as bytes
 *   settings.ts    what an operator sets; options.ts brings it and the caller's options together
 *   structures.ts  the native side's structures
 *   engine.ts      the native node: opened, asked, closed
 *   flows.ts       all connections, and the node's events
 *   dialler.ts     outbound attempts; reasons.ts: why they and flows end
 *   stats.ts       what is counted; hub.ts: what all of these share
 *   wire.ts        the node
 * What the verbs wire has as well (rings, memory, messages in and out, peers) is in `../native`, what all wires have in `../common`.
 * May import: memory, message, ffi, settings, errors, ../native, ../common.
 * Start at `wire.ts`.
 */
export { Engine } from "./engine.ts";
export { hugepageBytesNeeded, resolveDpdkOptions, type DpdkHost, type DpdkOptions } from "./options.ts";
export { dpdkEnvironment, type DpdkEnvironment } from "./settings.ts";
export { DpdkWire, type DpdkParts } from "./wire.ts";
