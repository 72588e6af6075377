/**
 * The sockets wire: ZAP messages over `Bun.listen` and `Bun.connect` (TCP over IPv4 and IPv6, unix sockets, TLS 1.3).
 * The format on the wire and the rules for duplicates are in `docs/wire-sockets.md`.
 *
 * What lives here, from the bytes up:
 *   options.ts     the options, checked
 *   hello.ts       the handshake message and the control frames
 *   tls.ts         TLS options, and the binding of node id and certificate
 *   frames.ts      bytes in, messages out: the receive state machine
 *   segment.ts     a piece of an outbox
 *   outbox.ts      messages in, bytes out: coalescing, partial writes, what is left after a loss
 *   inbox.ts       received messages and the `recv` calls that wait for them
 *   handlers.ts    from Bun's callbacks to a connection
 *   connection.ts  one socket and its state
 *   peer.ts        one remote node: its connection, its outbox, the `send` calls that wait
 *   coalescer.ts   when queued frames go to the kernel
 *   acceptor.ts    inbound connections
 *   dialler.ts     outbound connections: attempts, backoff
 *   greeter.ts     who a new connection belongs to, and which of two stays
 *   caretaker.ts   everything that depends on time
 *   hub.ts         what all of these share
 *   above.ts       what a wire over this one sees of it
 *   wire.ts        the node
 *   slabs/         receiving into unified memory, without a copy in between
 * What other wires have as well is in `../common`.
 * May import: memory, message, ffi, errors, ../common.
 * Start at `wire.ts`.
 */
export type { Above, Link } from "./above.ts";
export { Poller, SlabMemory, STREAM_BYTES } from "./slabs/index.ts";
export { SocketsWire } from "./wire.ts";
