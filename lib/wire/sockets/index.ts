/**
 * The sockets wire: ZAP messages over `Bun.listen` and `Bun.connect` (TCP over IPv4 and IPv6, unix sockets, TLS 1.3).
 * The format on the wire and the rules for duplicates are in `docs/wire-sockets.md`.
 *
 * What lives here, from the bytes up:
 *   address.ts     what an address looks like
 *   hello.ts       the handshake message and the control frames
 *   tls.ts         TLS options, and the binding of node id and certificate
 *   frames.ts      bytes in, messages out: the receive state machine
 *   fifo.ts        a queue over a ring
 *   outbox.ts      messages in, bytes out: coalescing, partial writes, what is left after a loss
 *   inbox.ts       received envelopes and the `recv` calls that wait for them
 *   connection.ts  one socket and its state
 *   peer.ts        one remote node: its connection, its outbox, the `send` calls that wait
 *   dialler.ts     outbound connections: attempts, backoff
 *   greeter.ts     who a new connection belongs to, and which of two stays
 *   hub.ts         what all of these share
 *   wire.ts        the node: listeners, peers, timers, close
 * May import: memory, message, errors.
 * Start at `wire.ts`.
 */
export { SocketsWire } from "./wire.ts";
