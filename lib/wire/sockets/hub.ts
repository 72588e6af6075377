/** What the parts of one sockets wire share: settings, queues, counters, events, and the bounds over all connections. */
import type { ZapError } from "../../errors/index.ts";
import type { WireEvent } from "../contract.ts";
import { EventQueue } from "../common/events.ts";
import type { Limits } from "../settings.ts";
import type { Above } from "./above.ts";
import type { Connection } from "./connection.ts";
import { Inbox } from "./inbox.ts";
import { OutboxPool } from "./outbox.ts";
import type { SlabMemory } from "./slabs/index.ts";

/** Why a connection is not being read. Several may hold at once. */
export const PAUSE_PEER_QUEUE = 1;
export const PAUSE_TOTAL_QUEUE = 2;
export const PAUSE_HELD = 4;
export const PAUSE_RESERVE = 8;
export const PAUSE_MEMORY = 16;

export class Hub {
  readonly nodeId: string;
  readonly limits: Limits;
  /** Message versions to take; undefined for the one of this library. */
  readonly versions: readonly number[] | undefined;
  readonly inbox: Inbox;
  /** What messages are received into; null for the heap. */
  readonly memory: SlabMemory | null;
  /** The wire over this one, or null. */
  readonly above: Above | null;
  readonly pool = new OutboxPool();
  /** Every connection there is, whatever its state. */
  readonly connections = new Set<Connection>();
  readonly drops: Record<string, number> = {};
  messagesIn = 0;
  messagesOut = 0;
  bytesIn = 0;
  bytesOut = 0;
  undelivered = 0;
  /** Received bytes that were copied between the kernel and their message. */
  bytesCopied = 0;
  /** Messages that came after `close()` had begun. */
  discarded = 0;
  closing = false;

  private readonly events: EventQueue;
  private reservedBytes = 0;
  /** Connections that wait for memory, and how much. */
  private readonly reserveQueue = new Map<Connection, number>();
  private totalPaused = false;

  constructor(
    nodeId: string,
    limits: Limits,
    versions: readonly number[] | undefined,
    onEvent: (event: WireEvent) => void,
    memory: SlabMemory | null = null,
    above: Above | null = null,
  ) {
    this.nodeId = nodeId;
    this.limits = limits;
    this.versions = versions;
    this.events = new EventQueue(onEvent);
    this.memory = memory;
    this.above = above;
    this.inbox = new Inbox(({ peerId, held }) => {
      this.emit({ type: "unreleased", peer: peerId, envelopes: held });
    });
  }

  emit(event: WireEvent): void {
    this.events.emit(event);
  }

  fault(peer: string | null, error: ZapError): void {
    this.emit({ type: "error", peer, error });
  }

  drop(reason: string): void {
    this.drops[reason] = (this.drops[reason] ?? 0) + 1;
  }

  /**
   * Grants memory for one large frame. Always grants the first, so that a frame larger than the whole budget still passes
   * alone; a connection that is refused is read on when there is room, in order of asking.
   */
  reserve(connection: Connection, bytes: number): boolean {
    if (!this.hasRoom(bytes)) {
      this.reserveQueue.set(connection, bytes);
      connection.pause(PAUSE_RESERVE);
      return false;
    }
    this.reservedBytes += bytes;
    return true;
  }

  private hasRoom(bytes: number): boolean {
    // What still comes after `close()` is thrown away: nothing piles up.
    if (this.reservedBytes === 0 || this.closing) return true;
    return this.inbox.queuedBytes + this.reservedBytes + bytes <= this.limits.totalQueueBytes;
  }

  unreserve(bytes: number): void {
    if (bytes === 0) return;
    this.reservedBytes -= bytes;
    // The next in line reads on from its own turn of the loop: this may be deep in another connection's reading.
    if (this.reserveQueue.size > 0) queueMicrotask(() => this.readOn());
  }

  forget(connection: Connection): void {
    this.connections.delete(connection);
    this.reserveQueue.delete(connection);
  }

  /** Whoever is first in line and has room reads on; everybody behind it waits, so that nobody is overtaken for ever. */
  private readOn(): void {
    for (const [connection, bytes] of this.reserveQueue) {
      if (!this.hasRoom(bytes)) return;
      this.reserveQueue.delete(connection);
      connection.unpause(PAUSE_RESERVE);
    }
  }

  /** Called when a connection has been opened or read. Handshakes go on, whatever is queued. */
  checkTotal(connection: Connection): void {
    if (this.closing) return;
    if (this.totalPaused) {
      if (connection.state === "open") connection.pause(PAUSE_TOTAL_QUEUE);
    } else if (this.inbox.queuedBytes >= this.limits.totalQueueBytes) {
      this.totalPaused = true;
      for (const each of this.connections) if (each.state === "open") each.pause(PAUSE_TOTAL_QUEUE);
    }
  }

  private isTotalPaused(): boolean {
    return this.totalPaused;
  }

  /** Moves a connection behind all others. */
  lastInLine(connection: Connection): void {
    if (this.connections.delete(connection)) this.connections.add(connection);
  }

  /** Called when something was taken. */
  taken(): void {
    if (this.totalPaused && this.inbox.queuedBytes <= this.limits.totalQueueBytes / 2) {
      this.totalPaused = false;
      for (const connection of [...this.connections]) {
        // Some read on at once, and may have used up the room.
        if (this.isTotalPaused()) break;
        connection.unpause(PAUSE_TOTAL_QUEUE);
      }
    }
    if (this.reserveQueue.size > 0) this.readOn();
  }
}
