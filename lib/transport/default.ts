/** The `default` transport: the sockets wire over the heap. Always there. */
import { NotAvailableError } from "../errors/index.ts";
import type { Buffer } from "../memory/index.ts";
import { SocketsWire } from "../wire/index.ts";
import type {
  Capabilities,
  CloseReport,
  Envelope,
  Selection,
  Transport,
  TransportOptions,
  TransportStats,
} from "./contract.ts";
import { DEFAULT_CAPS } from "./probes/default.ts";

export async function openDefault(options: TransportOptions, selection: Selection): Promise<Transport> {
  return new DefaultTransport(await SocketsWire.open(options), selection);
}

class DefaultTransport implements Transport {
  readonly name = "default";
  readonly caps: Capabilities = DEFAULT_CAPS;
  readonly poolBytes = 0;
  readonly selection: Selection;
  private readonly wire: SocketsWire;

  constructor(wire: SocketsWire, selection: Selection) {
    this.wire = wire;
    this.selection = selection;
  }

  get nodeId(): string {
    return this.wire.nodeId;
  }

  get addresses(): readonly string[] {
    return this.wire.addresses;
  }

  connect(address: string, options?: { signal?: AbortSignal }): Promise<string> {
    return this.wire.connect(address, options?.signal);
  }

  peers(): string[] {
    return this.wire.peers();
  }

  send(peer: string, message: Uint8Array, options?: { signal?: AbortSignal }): Promise<void> {
    return this.wire.send(peer, message, options?.signal);
  }

  recv(options?: { signal?: AbortSignal }): Promise<Envelope> {
    return this.wire.recv(options?.signal);
  }

  trySend(peer: string, message: Uint8Array): boolean {
    return this.wire.trySend(peer, message);
  }

  tryRecv(): Envelope | null {
    return this.wire.tryRecv();
  }

  allocBuffer(_size: number, _options?: { signal?: AbortSignal }): Promise<Buffer> {
    const text =
      "the default transport has no managed memory: use the heap (new Uint8Array), or pick another transport";
    return Promise.reject(new NotAvailableError(text));
  }

  stats(): TransportStats {
    return this.wire.stats();
  }

  close(): Promise<CloseReport> {
    return this.wire.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.wire.close();
  }

  /** Every received envelope until the transport is closed. Leaving the loop leaves the transport open. */
  [Symbol.asyncIterator](): AsyncIterator<Envelope> {
    return this.wire.iterate();
  }
}
