/** Outbound connections: attempts, their deadlines, and the pauses between them. */
import { HandshakeError, LimitError, PeerUnreachableError, ZapError } from "../../errors/index.ts";
import { parseAddress } from "../common/address.ts";
import { keepUp, pauseDialling } from "../common/backoff.ts";
import { causeText, Connection, type ConnectionOwner, type WireSocket } from "./connection.ts";
import { socketHandlers, type SocketHandlers } from "./handlers.ts";
import type { Hub } from "./hub.ts";
import type { Peer } from "./peer.ts";
import type { Limits } from "../settings.ts";
import type { BunTls } from "./tls.ts";

/** One attempt to reach an address. */
export interface Dial {
  readonly address: string;
  /** Who must answer; null where the address is all that is known. */
  readonly expected: string | null;
  readonly connection: Connection;
  /** Our hello is out and not answered: the far end may be dialling us at this moment. */
  helloSent: boolean;
  /** When it went out, milliseconds of `performance.now()`. */
  helloAt: number;
  settled: boolean;
  /** Undoes what waits on behalf of this attempt. */
  cancel: (() => void) | null;
  readonly settle: (outcome: Peer | ZapError) => void;
}

export class Dialler {
  /** Attempts that have not come to an end. */
  readonly dials = new Set<Dial>();
  /** Attempts that the kernel is busy with, those given up included. */
  private connecting = 0;
  private readonly hub: Hub;
  private readonly tls: BunTls | null;
  private readonly owner: ConnectionOwner;
  private readonly handlers: SocketHandlers;

  /** `ready`: a dialled connection is up, and secured where TLS is on. */
  constructor(hub: Hub, owner: ConnectionOwner, tls: BunTls | null, ready: (connection: Connection) => void) {
    this.hub = hub;
    this.owner = owner;
    this.tls = tls;
    this.handlers = socketHandlers((socket) => this.opened(socket, ready), ready);
  }

  /** Starts an attempt. `settle` is called exactly once, never from inside this call. */
  dial(address: string, expected: string | null, settle: (outcome: Peer | ZapError) => void): Dial | null {
    const { hub } = this;
    const { connections } = hub.limits;
    // Known peers are not many; their attempts must get through whatever `connect` was asked for.
    if (hub.connections.size >= connections || (expected === null && this.connecting >= connections)) {
      const text = `${address}: not dialled, there are ${connections} connections or attempts (limits.connections)`;
      queueMicrotask(() => settle(new LimitError(text)));
      return null;
    }
    const connection = new Connection(hub, this.owner, false, address, this.tls !== null);
    const dial: Dial = {
      address,
      expected,
      connection,
      helloSent: false,
      helloAt: 0,
      settled: false,
      cancel: null,
      settle,
    };
    this.dials.add(dial);
    this.connecting++;
    this.open(dial)
      .catch((cause: unknown) => {
        this.finish(dial, new PeerUnreachableError(`${address}: ${causeText(cause)}`, { cause }));
        connection.gone(null);
      })
      .finally(() => this.connecting--);
    return dial;
  }

  private async open(dial: Dial): Promise<void> {
    const target = parseAddress(dial.address);
    const common = {
      data: dial.connection,
      socket: this.handlers,
      allowHalfOpen: true,
      ...(this.tls === null ? {} : { tls: this.tls as unknown as Bun.TLSOptions }),
    };
    if (target.kind === "unix") await Bun.connect<Connection>({ ...common, unix: target.path });
    else await Bun.connect<Connection>({ ...common, hostname: target.host, port: target.port });
  }

  of(connection: Connection): Dial | undefined {
    if (connection.inbound) return undefined;
    for (const dial of this.dials) if (dial.connection === connection) return dial;
    return undefined;
  }

  /** The kernel has connected. An attempt that nobody wants any more ends here. */
  private opened(socket: WireSocket, ready: (connection: Connection) => void): void {
    const connection = socket.data;
    const dial = this.of(connection);
    if (dial === undefined || dial.settled) {
      socket.terminate();
      return;
    }
    connection.opened(socket);
    if (connection.state === "greeting") ready(connection);
  }

  finish(dial: Dial, outcome: Peer | ZapError): void {
    this.dials.delete(dial);
    if (dial.settled) return;
    dial.settled = true;
    dial.settle(outcome);
  }

  /**
   * Gives an attempt up. One that the kernel is still connecting cannot be called off; when it comes through or fails, nobody
   * hears of it.
   */
  abandon(dial: Dial, error: ZapError): void {
    this.dials.delete(dial);
    if (dial.settled) return;
    dial.settled = true;
    dial.cancel?.();
    dial.settle(error);
    dial.connection.end();
  }

  /** The connection of an attempt ended before its hello was answered. */
  lost(dial: Dial, error: ZapError | null): void {
    if (error instanceof HandshakeError) return this.finish(dial, error);
    const broken = error === null ? "closed the connection" : "broke the connection";
    const text =
      `${dial.address} ${broken} before it answered the handshake: it does not allow this node, ` +
      "is connected with it already, does not accept its certificate, has no room, is this node itself, " +
      "speaks TLS where we do not (or the reverse), or is no ZAP node";
    this.finish(dial, new HandshakeError(text, error === null ? undefined : { cause: error }));
  }

  /** Calls off every attempt. */
  close(error: ZapError): void {
    for (const dial of [...this.dials]) this.abandon(dial, error);
  }

  /** Dials a peer whose address is known, unless that is under way, done, or not due yet. */
  keepUp(peer: Peer, now: number): void {
    keepUp(peer, this.hub, now, (address, expected, settle) => this.dial(address, expected, settle));
  }

  /** Sets when a peer that was not reached, or was lost, is dialled again. */
  pause(peer: Peer): void {
    pauseDialling(peer, this.hub.limits);
  }

  /** Gives up attempts that the kernel has been at for too long: a new one may get through sooner. */
  expire(now: number): void {
    const { handshakeMillis } = this.hub.limits;
    for (const dial of [...this.dials]) {
      const { connection, address } = dial;
      if (connection.socket !== null || now - connection.bornAt < handshakeMillis) continue;
      this.abandon(dial, this.timeout(address, handshakeMillis, "handshakeMillis"));
    }
  }

  timeout(address: string, millis: number, limit: keyof Limits): PeerUnreachableError {
    return new PeerUnreachableError(`${address} was not reached within ${millis} ms (limits.${limit})`);
  }
}
