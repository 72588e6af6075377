/**
 * Nodes over the sockets wire, opened for one test and closed at its end: over the default transport, or with
 * `ZAP_TEST_MEMORY=slabs` over slabs as `uma` has them (see `slab-transport.ts`), so that the same tests hold for both.
 */
import { pick } from "../../lib/transport/index.ts";
import type {
  CloseReport,
  Envelope,
  Transport,
  TransportEvent,
  TransportOptions,
} from "../../lib/transport/index.ts";
import { isMessage, messageOf, numberOf } from "./messages.ts";
import { RawSocket, type RawOptions } from "./raw.ts";
import { openOverSlabs } from "./slab-transport.ts";
import { until, within } from "./wait.ts";

/** Received messages go into slabs. */
export const OVER_SLABS = process.env["ZAP_TEST_MEMORY"] === "slabs";
const QUIET = { ZAP_TRANSPORT_QUIET: "1" };

/** A transport with its events noted down. */
export class Node {
  readonly transport: Transport;
  readonly events: TransportEvent[];

  constructor(transport: Transport, events: TransportEvent[]) {
    this.transport = transport;
    this.events = events;
  }

  get id(): string {
    return this.transport.nodeId;
  }

  get address(): string {
    return this.transport.addresses[0] ?? "nowhere";
  }

  get port(): number {
    return Number(this.address.slice(this.address.lastIndexOf(":") + 1));
  }

  /** Error events so far: `[peer, code, text]`. */
  get errors(): { readonly peer: string | null; readonly code: string; readonly text: string }[] {
    return this.events.flatMap((event) =>
      event.type === "error" ? [{ peer: event.peer, code: event.error.code, text: event.error.message }] : [],
    );
  }

  /** Everything but coming and going: what a quiet life has none of. */
  get troubles(): string[] {
    return this.events.flatMap((event) => {
      if (event.type === "error") return [`error ${event.peer}: ${event.error.code}: ${event.error.message}`];
      if (event.type === "disconnected" && event.error !== null)
        return [`disconnected ${event.peer}: ${event.error.message}`];
      return [];
    });
  }

  async send(peer: string, message: Uint8Array): Promise<void> {
    await within(this.transport.send(peer, message), `send from ${this.id} to ${peer}`);
  }

  /** The next message, copied out of its envelope. */
  async recv(millis = 4_000): Promise<Pick<Envelope, "peer" | "message">> {
    const envelope = await within(this.transport.recv(), `a message at ${this.id}`, millis);
    const { peer } = envelope;
    const message = envelope.message.slice();
    envelope.release();
    return { peer, message };
  }

  /** Takes `count` messages and checks that those of each peer are `messageOf(_, 0)`, `messageOf(_, 1)`, ... in order. */
  async takeNumbered(count: number, millis = 10_000): Promise<Map<string, number>> {
    const next = new Map<string, number>();
    const all = async (): Promise<void> => {
      for (let i = 0; i < count; i++) {
        const envelope = await this.transport.recv();
        const expected = next.get(envelope.peer) ?? 0;
        const got = numberOf(envelope.message);
        if (got !== expected) throw new Error(`${envelope.peer}: expected message ${expected}, got ${got}`);
        if (!isMessage(envelope.message, got)) throw new Error(`${envelope.peer}: message ${got} is damaged`);
        next.set(envelope.peer, expected + 1);
        envelope.release();
      }
    };
    await within(all(), `${count} messages at ${this.id}`, millis);
    return next;
  }

  /** Sends `messageOf(bytes, first)`, ..., waiting for each. */
  async sendNumbered(peer: string, count: number, bytes = 64, first = 0): Promise<void> {
    for (let i = first; i < first + count; i++) await this.transport.send(peer, messageOf(bytes, i));
  }

  /** Waits until a part of its one message of `bytes` bytes is with the kernel, and no more goes there. */
  async untilHalfWritten(bytes: number): Promise<void> {
    let before = 0;
    await until(() => {
      const { queuedOutBytes } = this.transport.stats();
      const stands = queuedOutBytes === before && queuedOutBytes > 0 && queuedOutBytes < bytes;
      before = queuedOutBytes;
      return stands;
    }, "a message half written");
  }

  async untilPeers(count: number): Promise<void> {
    await until(() => this.transport.peers().length === count, `${count} peers at ${this.id}`);
  }

  async untilError(code: string, peer?: string | null, millis = 4_000): Promise<string> {
    const found = () =>
      this.errors.find((error) => error.code === code && (peer === undefined || error.peer === peer));
    await until(() => found() !== undefined, `an error event ${code} of ${peer} at ${this.id}`, millis);
    return found()?.text ?? "";
  }

  async close(): Promise<CloseReport> {
    return within(this.transport.close(), `close of ${this.id}`, 15_000);
  }
}

/** Addresses of 127.0.0.1 where nobody listens (any more). */
export function freeAddresses(count: number): string[] {
  const listeners = Array.from({ length: count }, () =>
    Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } }),
  );
  const addresses = listeners.map((listener) => `127.0.0.1:${listener.port}`);
  for (const listener of listeners) listener.stop(true);
  return addresses;
}

/** Everything that one test opens. `await using net = new Net()` closes it all, however the test ends. */
export class Net implements AsyncDisposable {
  private readonly nodes: Node[] = [];
  private readonly sockets: RawSocket[] = [];
  private readonly defaults: TransportOptions;

  constructor(defaults: TransportOptions = {}) {
    this.defaults = defaults;
  }

  /** A node that listens on a free port of 127.0.0.1, unless `options.listen` says otherwise. */
  async node(nodeId: string, options: TransportOptions = {}): Promise<Node> {
    const events: TransportEvent[] = [];
    const all: TransportOptions = {
      nodeId,
      listen: "127.0.0.1:0",
      ...this.defaults,
      ...options,
      limits: { closeMillis: 1_000, ...this.defaults.limits, ...options.limits },
      onEvent: (event) => void events.push(event),
    };
    const transport = OVER_SLABS ? await openOverSlabs(all) : await pick("default", { ...all, env: QUIET });
    const node = new Node(transport, events);
    this.nodes.push(node);
    return node;
  }

  /** Two connected nodes, `a` the one that dialled. */
  async pair(aOptions: TransportOptions = {}, bOptions: TransportOptions = aOptions): Promise<[Node, Node]> {
    const [a, b] = [await this.node("a", aOptions), await this.node("b", bOptions)];
    await within(a.transport.connect(b.address), "a to connect to b");
    await b.untilPeers(1);
    return [a, b];
  }

  /** A bare socket to a node. */
  async raw(to: Node | string, options: RawOptions = {}): Promise<RawSocket> {
    const socket = await RawSocket.connect(typeof to === "string" ? to : to.address, options);
    this.sockets.push(socket);
    return socket;
  }

  /** A bare socket that has shaken hands as `nodeId`. */
  async rawPeer(to: Node | string, nodeId: string, kind = 0): Promise<RawSocket> {
    const socket = await this.raw(to);
    await socket.greet(nodeId, kind);
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.terminate();
    await Promise.all(this.nodes.map((node) => node.close()));
  }
}
