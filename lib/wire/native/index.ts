/**
 * What wires over a native node have in common: a node is memory, threads that move messages, and five rings between them and the event
 * loop (`shim/include/zap_ring.h`). The dpdk wire and the verbs wire are both of that shape; who a peer is and how it is reached is theirs.
 *
 * What lives here, from the memory up:
 *   rings.ts     our ends of the rings
 *   engine.ts    the node: opened, woken by, closed
 *   memory.ts    its region as JavaScript sees it, and its end
 *   envelope.ts  one received message; device-envelope.ts and device-buffer.ts: the same in a GPU's own memory; inbox.ts: all of them, and
 *                the `recv` calls that wait
 *   blocks.ts    the memory that messages are copied into; outbox.ts: all that are on their way out
 *   flow.ts      one connection; peer.ts: one remote node, and the `send` calls that wait
 *   hub.ts       what all of these share; caretaker.ts: the timer
 * May import: memory, message, ffi, errors, ../common, and the contract and settings of all wires.
 * Start at `engine.ts`. The wires import the files themselves.
 */
export { NativeNode, type NativeEngine, type Waking } from "./engine.ts";
export type { ReceivedOnDevice, RegionOnDevice } from "./memory.ts";
