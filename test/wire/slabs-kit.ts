/** Transports over slabs, opened for one test and closed at its end. */
import type { SlabPool } from "../../lib/memory/index.ts";
import type { Envelope, Transport, TransportEvent, TransportOptions } from "../../lib/transport/index.ts";
import { RawSocket } from "../support/raw.ts";
import { openOverSlabs } from "../support/slab-transport.ts";
import { until, within } from "../support/wait.ts";

export const MIB = 1024 * 1024;
export const SETTINGS = { poolBytes: 256 * MIB, debug: false };
/** For a small pool: few connections and small frames. */
export const SMALL = { frameBytes: MIB, connections: 8, handshakes: 4 };

export class Slabs implements AsyncDisposable {
  readonly events: TransportEvent[] = [];
  private readonly transports: Transport[] = [];
  private readonly sockets: RawSocket[] = [];

  async open(nodeId: string, options: TransportOptions = {}, settings = SETTINGS): Promise<Transport> {
    const all = {
      nodeId,
      listen: "127.0.0.1:0",
      onEvent: (event: TransportEvent) => void this.events.push(event),
    };
    const limits = { closeMillis: 500, ...options.limits };
    const transport = await openOverSlabs({ ...all, ...options, limits }, settings);
    this.transports.push(transport);
    return transport;
  }

  /** `a` has dialled `b`. */
  async pair(options: TransportOptions = {}, settings = SETTINGS): Promise<[Transport, Transport]> {
    const [a, b] = [await this.open("a", options, settings), await this.open("b", options, settings)];
    await within(a.connect(b.addresses[0]!), "connect");
    await until(() => b.peers().length === 1, "the connection");
    return [a, b];
  }

  /** A bare socket that has shaken hands. */
  async raw(to: Transport, nodeId: string): Promise<RawSocket> {
    const raw = await RawSocket.connect(to.addresses[0]!);
    this.sockets.push(raw);
    await raw.greet(nodeId, 0);
    return raw;
  }

  /** Error events so far: `code: text`. */
  get errors(): string[] {
    return this.events.flatMap((event) =>
      event.type === "error" ? [`${event.error.code}: ${event.error.message}`] : [],
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.terminate();
    await Promise.all(this.transports.map((transport) => transport.close()));
  }
}

/** The pool that a transport receives into. */
export function poolOf(transport: Transport): SlabPool {
  return (transport as unknown as { memory: { pool: SlabPool } }).memory.pool;
}

/** The next message, or null where none comes within `millis`. */
export async function nextWithin(transport: Transport, millis: number): Promise<Envelope | null> {
  const signal = AbortSignal.timeout(millis);
  return transport.recv({ signal }).catch(() => null);
}
