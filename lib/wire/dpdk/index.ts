/**
 * The dpdk wire: ZAP messages over UDP, on a network device that this process drives itself. The format on the wire and what it promises are
 * in `docs/wire-dpdk.md`; everything below a whole message is the native side's (`shim/include/zap_dpdk.h`).
 *
 * What lives here, from the memory up:
 *   rings.ts       our ends of the rings between the native side and us
 *   ip.ts          addresses as bytes
 *   settings.ts    what an operator sets; options.ts brings it and the caller's options together
 *   structures.ts  the native side's structures
 *   engine.ts      the native node: opened, asked, closed
 *   memory.ts      the region as JavaScript sees it, and its end
 *   envelope.ts    one received message; inbox.ts: all of them, and the `recv` calls that wait
 *   blocks.ts      the memory that messages are copied into; outbox.ts: all that are on their way out
 *   flow.ts        one connection; flows.ts: all of them, and the node's events
 *   peer.ts        one remote node, and the `send` calls that wait
 *   dialler.ts     outbound attempts; reasons.ts: why they and flows end
 *   caretaker.ts   the timer; stats.ts: what is counted; hub.ts: what all of these share
 *   wire.ts        the node
 * What other wires have as well is in `../common`.
 * May import: memory, message, ffi, settings, errors, ../common.
 * Start at `wire.ts`.
 */
export { Engine, type Waking } from "./engine.ts";
export type { RegionOnDevice } from "./memory.ts";
export { hugepageBytesNeeded, resolveDpdkOptions, type DpdkHost, type DpdkOptions } from "./options.ts";
export { dpdkEnvironment, type DpdkEnvironment } from "./settings.ts";
export { DpdkWire, type DpdkParts } from "./wire.ts";
