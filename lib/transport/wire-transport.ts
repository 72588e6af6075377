/** What all transports have in common: everything but where received bytes land. */
import type { Buffer } from "../memory/index.ts";
import type {
  Capabilities,
  CloseReport,
  Envelope,
  Selection,
  Transport,
  TransportName,
  TransportStats,
} from "./contract.ts";

/** What a transport needs of its wire. */
export interface Wire {
  readonly nodeId: string;
  readonly addresses: readonly string[];
  connect(address: string, signal?: AbortSignal): Promise<string>;
  peers(): string[];
  send(peer: string, message: Uint8Array, signal?: AbortSignal): Promise<void>;
  trySend(peer: string, message: Uint8Array): boolean;
  recv(signal?: AbortSignal): Promise<Envelope>;
  tryRecv(): Envelope | null;
  iterate(): AsyncIterator<Envelope>;
  stats(): TransportStats;
  close(): Promise<CloseReport>;
}

export abstract class WireTransport<W extends Wire> implements Transport {
  abstract readonly name: TransportName;
  abstract readonly caps: Capabilities;
  abstract readonly poolBytes: number;
  readonly selection: Selection;
  protected readonly wire: W;

  constructor(wire: W, selection: Selection) {
    this.wire = wire;
    this.selection = selection;
  }

  abstract allocBuffer(size: number, options?: { signal?: AbortSignal }): Promise<Buffer>;
  abstract tryAllocBuffer(size: number): Buffer | null;
  abstract close(): Promise<CloseReport>;

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

  stats(): TransportStats {
    return this.wire.stats();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Every received envelope until the transport is closed. Leaving the loop leaves the transport open. */
  [Symbol.asyncIterator](): AsyncIterator<Envelope> {
    return this.wire.iterate();
  }
}
