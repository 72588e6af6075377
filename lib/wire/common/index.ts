/**
 * What the wires have in common, and nothing that knows of sockets or ports.
 *
 * What lives here: what an address and a node id look like (`address.ts`, `node-id.ts`), the options (`options.ts`), what `send` refuses
 * (`sendable.ts`), the peers by id (`book.ts`) and dialling them again (`backoff.ts`), how a call is told of its end (`settle.ts`), the `recv` calls that wait (`recv-line.ts`) and
 * `for await` over them (`iterator.ts`), a received message as a buffer (`message-buffer.ts`), envelopes that nobody released (`lease.ts`),
 * events on their way out (`events.ts`), turns of the event loop (`breather.ts`), and two queues (`fifo.ts`, `waitlist.ts`).
 * May import: memory, message, errors.
 * Start at `recv-line.ts`. The wires import the files themselves.
 */
export { PeerBook, type BookPeer } from "./book.ts";
export { RecvLine, type RecvWaiter } from "./recv-line.ts";
