/** Inbound connections: listening, and the bounds on those who have not said who they are. */
import { existsSync, lstatSync, unlinkSync } from "node:fs";
import { AddressError, HandshakeError } from "../../errors/index.ts";
import { formatAddress, formatHostPort, parseAddress } from "../common/address.ts";
import { causeText, Connection, type ConnectionOwner, type WireSocket } from "./connection.ts";
import { socketHandlers } from "./handlers.ts";
import type { Hub } from "./hub.ts";
import type { BunTls } from "./tls.ts";

export class Acceptor {
  private readonly hub: Hub;
  private readonly owner: ConnectionOwner;
  private readonly tls: BunTls | null;
  private readonly listeners: { stop(closeActiveConnections?: boolean): void }[] = [];
  /** Connections in handshake, oldest first. */
  private readonly strangers = new Set<Connection>();

  constructor(hub: Hub, owner: ConnectionOwner, tls: BunTls | null) {
    this.hub = hub;
    this.owner = owner;
    this.tls = tls;
  }

  /** Resolves with the address that peers dial, with the real port. Rejects with `AddressError`. */
  async listen(place: string): Promise<string> {
    const address = parseAddress(place, true);
    const common = {
      // The dialler speaks first, so a secured connection just waits for its hello.
      socket: socketHandlers(
        (socket) => this.accepted(socket),
        () => {},
      ),
      allowHalfOpen: true,
      ...(this.tls === null ? {} : { tls: this.tls as unknown as Bun.TLSOptions }),
    };
    try {
      if (address.kind === "unix") {
        await removeStaleSocket(address.path);
        this.listeners.push(Bun.listen<Connection>({ ...common, unix: address.path }));
        return formatAddress(address);
      }
      const listener = Bun.listen<Connection>({ ...common, hostname: address.host, port: address.port });
      this.listeners.push(listener);
      return formatHostPort(address.host, listener.port);
    } catch (cause) {
      const code = (cause as { code?: string }).code;
      const why = code === "EADDRINUSE" ? "the address is in use" : causeText(cause);
      throw new AddressError(`cannot listen on ${place}: ${why}`, { cause });
    }
  }

  stop(): void {
    for (const listener of this.listeners) listener.stop(false);
  }

  /** A connection has said who it is, or is gone. */
  known(connection: Connection): void {
    this.strangers.delete(connection);
  }

  private accepted(socket: WireSocket): void {
    const { hub, strangers } = this;
    if (hub.closing) {
      socket.terminate();
      return;
    }
    const full = hub.connections.size >= hub.limits.connections;
    const [oldest] = strangers;
    if (full && oldest === undefined) {
      hub.drop("connections");
      socket.terminate();
      return;
    }
    if (oldest !== undefined && (full || strangers.size >= hub.limits.handshakes)) {
      hub.drop("handshakes");
      const text = `${oldest.address} was slow to say hello, and others came`;
      oldest.fail(new HandshakeError(`${text} (limits.handshakes, limits.connections)`));
    }
    const from =
      socket.remoteAddress === undefined
        ? "a unix socket"
        : formatHostPort(socket.remoteAddress, socket.remotePort);
    const connection = new Connection(hub, this.owner, true, from, this.tls !== null);
    connection.opened(socket);
    socket.data = connection;
    strangers.add(connection);
  }
}

/** A socket file that nobody listens on any more is in the way of a new listener. Anything else is left alone. */
async function removeStaleSocket(path: string): Promise<void> {
  if (!existsSync(path) || !lstatSync(path).isSocket()) return;
  const ignore = (): void => {};
  try {
    const socket = await Bun.connect({ unix: path, socket: { data: ignore, open: ignore } });
    socket.terminate();
  } catch (error) {
    if ((error as { code?: string }).code === "ECONNREFUSED") unlinkSync(path);
  }
}
