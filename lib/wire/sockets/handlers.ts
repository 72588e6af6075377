/** From Bun's socket callbacks to the connection that they are about, TLS verdicts included. */
import { HandshakeError } from "../../errors/index.ts";
import type { Connection, WireSocket } from "./connection.ts";
import { certificateNames, chainFault } from "./tls.ts";

/** Kernel keepalive probes find hosts that vanished; ours find processes that hang. */
const TCP_KEEPALIVE_MILLIS = 30_000;

export type SocketHandlers = Bun.SocketHandler<Connection>;

/** `opened`: the kernel has connected. `secured`: TLS is up and the certificate good; never called without TLS. */
export function socketHandlers(
  opened: (socket: WireSocket) => void,
  secured: (connection: Connection) => void,
): SocketHandlers {
  return {
    binaryType: "uint8array",
    open: (socket) => {
      socket.setKeepAlive(true, TCP_KEEPALIVE_MILLIS);
      opened(socket);
    },
    handshake: (socket, _success, error) => {
      const connection = socket.data as Connection | undefined;
      if (connection?.state !== "securing") return;
      const fault = chainFault(socket, !connection.inbound, error);
      if (fault !== null) {
        connection.fail(new HandshakeError(`${connection.address}: TLS: ${fault}`));
        return;
      }
      connection.certificateNames = certificateNames(socket);
      connection.state = "greeting";
      secured(connection);
    },
    data: (socket, chunk) => socket.data?.feed(chunk as unknown as Uint8Array),
    drain: (socket) => socket.data?.flush(),
    end: (socket) => socket.data?.ended(),
    // Also an exception from one of these callbacks comes here: the connection must not stay half alive.
    error: (socket, error) => socket.data?.broken(error),
    close: (socket, error) => socket.data?.closed(error ?? null),
  };
}
