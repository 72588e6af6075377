/** Takes files in from any number of peers: which transfers are open, what each message does, and the receipts. */
import { parse, type Envelope, type Transport } from "../../index.ts";
import { Incoming, Refusal } from "./incoming.ts";
import {
  readFileMessage,
  STATUS,
  TRANSFER_VERSION,
  type FileData,
  type FileEnd,
  type FileMessage,
  type FileStart,
} from "./messages.ts";
import { printable, safeName } from "./names.ts";
import { Replies } from "./replies.ts";
import { sizeText } from "./units.ts";

/** Open at once, in all and for one peer. One more is refused. */
export const TRANSFERS_MAX = 64;
export const TRANSFERS_PER_PEER_MAX = 8;
const SWEEP_MILLIS = 500;

export interface ReceiverOptions {
  /** Where files go; it exists. */
  readonly folder: string;
  /** The largest file taken, bytes. */
  readonly bytesMax: number;
  /** A transfer that does not move for this long is given up, milliseconds. */
  readonly patienceMillis: number;
}

/** A file that came and was saved. */
export interface Arrival {
  readonly peer: string;
  /** The name of the file in the folder. */
  readonly savedAs: string;
  readonly size: number;
  readonly hash: Uint8Array;
  readonly millis: number;
}

/** What the receiver tells whoever shows it to people. */
export interface ReceiverEvents {
  progress(open: readonly Incoming[]): void;
  saved(arrival: Arrival): void;
  /** `label` is printable. */
  failed(label: string, peer: string, reason: string): void;
  /** A message that is none about a file to be received. */
  ignored(peer: string, what: string): void;
  /** A peer that had begun a transfer is gone, and everything that came from it was dealt with. */
  left(peer: string): void;
}

export class Receiver {
  private readonly transport: Transport;
  private readonly options: ReceiverOptions;
  private readonly events: ReceiverEvents;
  private readonly transfers = new Map<string, Incoming>();
  /** Peers that have begun a transfer since they connected. */
  private readonly served = new Set<string>();
  /** Peers that have disconnected; what they sent before may still be queued. */
  private readonly gone = new Map<string, string>();
  private readonly replies: Replies;
  private busy = false;

  constructor(transport: Transport, options: ReceiverOptions, events: ReceiverEvents) {
    this.transport = transport;
    this.replies = new Replies(transport);
    this.options = options;
    this.events = events;
  }

  /** Receives until `signal` fires. Then, and on any error, what is unfinished is removed and its senders are told. */
  async run(signal: AbortSignal): Promise<void> {
    const stop = (): void => {
      for (const transfer of [...this.transfers.values()]) {
        if (!transfer.finishing)
          this.refuse(transfer, new Refusal(STATUS.stopped, "the receiver was stopped"));
      }
    };
    const sweep = setInterval(() => this.sweep(), SWEEP_MILLIS);
    signal.addEventListener("abort", stop);
    try {
      for (;;) await this.take(await this.transport.recv({ signal }));
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      signal.removeEventListener("abort", stop);
      clearInterval(sweep);
      stop();
    }
  }

  /** To be called when a peer connects. */
  connected(peer: string): void {
    this.gone.delete(peer);
  }

  /** To be called when a peer disconnects. What it left unfinished is removed once all that it sent was dealt with. */
  disconnected(peer: string, reason: string): void {
    this.gone.set(peer, reason);
    this.settleGone();
  }

  private async take(envelope: Envelope): Promise<void> {
    const { peer } = envelope;
    this.busy = true;
    try {
      const message = parse(envelope.message);
      const known = readFileMessage(message);
      if (known === null) this.events.ignored(peer, `a message of type ${message.type}`);
      else await this.handle(peer, known);
    } finally {
      this.busy = false;
      envelope.release();
    }
    this.settleGone();
  }

  private async handle(peer: string, message: FileMessage): Promise<void> {
    if (message.kind === "start") return this.start(peer, message);
    const transfer = this.transfers.get(key(peer, message.id));
    switch (message.kind) {
      case "data":
        // Chunks of a transfer that was refused may still be on their way.
        if (transfer !== undefined) await this.data(transfer, message);
        return;
      case "end":
        if (transfer !== undefined) await this.end(transfer, message);
        else
          this.replies.send(peer, message.id, {
            status: STATUS.protocol,
            reason: "no such transfer is open",
          });
        return;
      case "cancel":
        if (transfer !== undefined) this.drop(transfer, `the sender gave up: ${printable(message.reason)}`);
        return;
      case "receipt":
        this.events.ignored(peer, "a receipt");
    }
  }

  private async start(peer: string, start: FileStart): Promise<void> {
    this.served.add(peer);
    try {
      this.vet(peer, start);
      const transfer = await Incoming.open(this.options.folder, peer, start);
      this.transfers.set(key(peer, start.id), transfer);
      this.replies.send(peer, start.id, { status: STATUS.ready });
      this.progress();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.replies.send(peer, start.id, { status: error.status, reason: error.message });
      this.events.failed(printable(safeName(start.name)), peer, error.message);
    }
  }

  private vet(peer: string, { id, size, version }: FileStart): void {
    const { bytesMax } = this.options;
    if (version !== TRANSFER_VERSION) {
      const text = `version ${version} of the transfer is not known here, only ${TRANSFER_VERSION} is`;
      throw new Refusal(STATUS.protocol, text);
    }
    const open = this.transfers.get(key(peer, id));
    if (open !== undefined) {
      this.refuse(open, new Refusal(STATUS.protocol, "its transfer was started a second time"));
      throw new Refusal(STATUS.protocol, "a transfer with this id was open already");
    }
    const most = Math.min(bytesMax, Number.MAX_SAFE_INTEGER);
    if (size > most)
      throw new Refusal(STATUS.size, `it has ${sizeText(size)}; at most ${sizeText(most)} are taken`);
    const ofPeer = [...this.transfers.values()].filter((each) => each.peer === peer).length;
    if (this.transfers.size >= TRANSFERS_MAX || ofPeer >= TRANSFERS_PER_PEER_MAX) {
      throw new Refusal(STATUS.busy, "too many transfers are open");
    }
  }

  private async data(transfer: Incoming, data: FileData): Promise<void> {
    try {
      await transfer.write(data);
      this.progress();
    } catch (error) {
      this.refuse(transfer, error);
    }
  }

  private async end(transfer: Incoming, end: FileEnd): Promise<void> {
    try {
      const { savedAs, hash } = await transfer.finish(end);
      this.forget(transfer);
      const { peer, id, size, startedAt } = transfer;
      this.replies.send(peer, id, { status: STATUS.saved, size, hash });
      this.events.saved({ peer, savedAs, size, hash, millis: performance.now() - startedAt });
    } catch (error) {
      this.refuse(transfer, error);
    }
  }

  /** Ends a transfer for a reason that its sender must hear. Does nothing where it has ended meanwhile. */
  private refuse(transfer: Incoming, error: unknown): void {
    if (!this.isOpen(transfer)) return;
    if (!(error instanceof Refusal)) throw error;
    const { peer, id, received } = transfer;
    // First the file goes, then its sender hears of it: who has the receipt can rely on nothing being left.
    this.drop(transfer, error.message);
    this.replies.send(peer, id, { status: error.status, size: received, reason: error.message });
  }

  private drop(transfer: Incoming, reason: string): void {
    transfer.discard();
    this.forget(transfer);
    this.events.failed(transfer.label, transfer.peer, reason);
  }

  private isOpen(transfer: Incoming): boolean {
    return this.transfers.get(key(transfer.peer, transfer.id)) === transfer;
  }

  private forget(transfer: Incoming): void {
    this.transfers.delete(key(transfer.peer, transfer.id));
    this.progress();
  }

  private progress(): void {
    this.events.progress([...this.transfers.values()]);
  }

  /** True while something that was received has not been dealt with. */
  private get behind(): boolean {
    return this.busy || this.transport.stats().queuedInMessages > 0;
  }

  private settleGone(): void {
    if (this.gone.size === 0 || this.behind) return;
    for (const [peer, reason] of [...this.gone]) {
      this.gone.delete(peer);
      for (const transfer of [...this.transfers.values()]) {
        if (transfer.peer === peer) this.drop(transfer, reason);
      }
      if (this.served.delete(peer)) this.events.left(peer);
    }
  }

  private sweep(): void {
    this.settleGone();
    if (this.behind) return;
    const { patienceMillis } = this.options;
    for (const transfer of [...this.transfers.values()]) {
      if (performance.now() - transfer.touchedAt < patienceMillis) continue;
      const text = `nothing came for ${patienceMillis / 1000} s`;
      this.refuse(transfer, new Refusal(STATUS.stopped, text));
    }
  }
}

function key(peer: string, id: bigint): string {
  return `${id} ${peer}`;
}
