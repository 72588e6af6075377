/**
 * Messages on their way out, of all peers. What is sent is copied into the pool, unless it lies in the node's memory already and is large;
 * its bytes are needed until the node says that the far end has them. Small messages share blocks.
 */
import { ptr } from "bun:ffi";
import { PeerUnreachableError, type ZapError } from "../../errors/index.ts";
import type { Limits } from "../settings.ts";
import { Blocks, type Block } from "./blocks.ts";
import type { Settle } from "../common/settle.ts";
import type { NativeEngine } from "./engine.ts";
import type { Flow } from "./flow.ts";
import type { NodeMemory } from "./memory.ts";
import type { Peer } from "./peer.ts";
import {
  ENTRY_ADDRESS,
  ENTRY_LENGTH,
  ENTRY_PEER,
  ENTRY_TOKEN,
  type RingConsumer,
  type RingProducer,
} from "./rings.ts";

/** Accepted and not come back, to one peer. */
export const QUEUE_MESSAGES = 1_024;
/** Up to this, copying costs less than keeping the sender waiting. */
const COPY_BYTES = 4 * 1024;
const HALF = 2 ** 32;

export class Outbox {
  /** Accepted and not come back, all peers. */
  queuedBytes = 0;
  queuedMessages = 0;
  /** Acknowledged. */
  messagesOut = 0;
  bytesOut = 0;
  /** Of sent messages, bytes that were copied into the pool. */
  bytesCopied = 0;
  /** Peers with `send` calls that wait for room or memory. */
  readonly waiting = new Set<Peer>();
  private readonly memory: NodeMemory;
  private readonly copies: Blocks;
  private readonly limits: Limits;
  private readonly sends: RingProducer;
  private readonly dones: RingConsumer;
  /** Numbers of messages that are free, a stack. */
  private readonly free: Uint32Array;
  private freeCount: number;
  private readonly lengths: Uint32Array;
  private readonly flows: (Flow | null)[];
  private readonly blocks: (Block | null)[];
  private readonly settles: (Settle | null)[];
  /** Messages that are sent where they lie. */
  private lent = 0;
  /** Told to look at all that comes back: the end is near. */
  private draining = false;
  private ended = false;

  /** Throws what the pool does where it has no block. */
  constructor(engine: NativeEngine, memory: NodeMemory, limits: Limits) {
    this.memory = memory;
    this.limits = limits;
    this.sends = engine.sends;
    this.dones = engine.dones;
    const numbers = Math.min(engine.messages, this.sends.slots, this.dones.slots);
    this.free = Uint32Array.from({ length: numbers }, (_, index) => numbers - 1 - index);
    this.freeCount = numbers;
    this.lengths = new Uint32Array(numbers);
    this.flows = new Array<Flow | null>(numbers).fill(null);
    this.blocks = new Array<Block | null>(numbers).fill(null);
    this.settles = new Array<Settle | null>(numbers).fill(null);
    this.copies = new Blocks(memory, () => {
      this.admit();
      this.turn();
    });
  }

  /**
   * A flow with nothing on its way may always have one message: one that is larger than a limit passes alone, and peers that do not
   * read cannot use up what others need.
   */
  hasRoom(flow: Flow, length: number): boolean {
    if (this.freeCount === 0 || flow.messages >= QUEUE_MESSAGES) return false;
    if (flow.messages === 0) return true;
    const { sendQueueBytes, totalQueueBytes } = this.limits;
    return flow.bytes + length <= sendQueueBytes && this.queuedBytes + length <= totalQueueBytes;
  }

  /** Whether a message is sent where it lies: large, and in the node's memory. */
  isInPlace(message: Uint8Array): boolean {
    return message.length > COPY_BYTES && this.memory.offsetOf(Number(ptr(message)), message.length) >= 0;
  }

  /** Sends a copy. False where there is no memory for it now. Throws what the pool does where there never will be. */
  copy(flow: Flow, message: Uint8Array): boolean {
    const block = this.copies.copy(message);
    if (block === null) return false;
    this.bytesCopied += message.length;
    this.produce(flow, this.memory.address + this.copies.copiedAt, message.length, block, null);
    return true;
  }

  /** Sends it where it lies, and settles when it has come back. */
  lend(flow: Flow, message: Uint8Array, settle: Settle): void {
    this.lent++;
    this.produce(flow, Number(ptr(message)), message.length, null, settle);
  }

  private produce(
    flow: Flow,
    address: number,
    length: number,
    block: Block | null,
    settle: Settle | null,
  ): void {
    const token = this.free[--this.freeCount]!;
    this.lengths[token] = length;
    this.flows[token] = flow;
    this.blocks[token] = block;
    this.settles[token] = settle;
    flow.messages++;
    flow.bytes += length;
    this.queuedMessages++;
    this.queuedBytes += length;
    const { sends } = this;
    const { words } = sends;
    const at = sends.at(0);
    const high = Math.floor(address / HALF);
    words[at + ENTRY_ADDRESS] = address - high * HALF;
    words[at + ENTRY_ADDRESS + 1] = high;
    words[at + ENTRY_LENGTH] = length;
    words[at + ENTRY_PEER] = flow.number;
    words[at + ENTRY_TOKEN] = token;
    sends.publish();
  }

  /** Takes back what has come back. Says whether that was anything. */
  drain(): boolean {
    const { dones } = this;
    const count = dones.available;
    if (count === 0) return false;
    const { words } = dones;
    for (let i = 0; i < count; i++) {
      const at = dones.at(i);
      this.done(words[at + ENTRY_TOKEN]!, words[at + ENTRY_LENGTH] !== 0);
    }
    dones.consume(count);
    return true;
  }

  private done(token: number, delivered: boolean): void {
    const flow = this.flows[token];
    if (flow === null || flow === undefined) return;
    const length = this.lengths[token]!;
    const settle = this.settles[token]!;
    const block = this.blocks[token]!;
    this.flows[token] = null;
    this.blocks[token] = null;
    this.settles[token] = null;
    this.free[this.freeCount++] = token;
    flow.messages--;
    flow.bytes -= length;
    this.queuedMessages--;
    this.queuedBytes -= length;
    if (block !== null) this.copies.putBack(block);
    else this.lent--;
    if (delivered) {
      this.messagesOut++;
      this.bytesOut += length;
      settle?.done();
    } else if (settle === null) flow.failed++;
    else {
      flow.rejected++;
      settle.failed(
        new PeerUnreachableError(
          `peer ${flow.peer.id} did not take the message: its connection ended, or its limits.frameBytes is lower`,
        ),
      );
    }
  }

  /** Takes back what has come back, gives the room to those who wait, and asks to be woken where that is needed. */
  turn(): void {
    if (this.ended) return;
    do {
      if (this.drain()) this.admit();
    } while (this.wanted && !this.dones.arm());
  }

  private get wanted(): boolean {
    return this.lent > 0 || this.waiting.size > 0 || (this.draining && this.queuedMessages > 0);
  }

  admit(): void {
    for (const peer of [...this.waiting]) peer.admit();
  }

  // ---- the end

  /** From now on everything that comes back is wanted. */
  beginEnd(): void {
    this.draining = true;
    this.turn();
  }

  /**
   * The node is closed: whatever has not come back will not. Fails the `send` calls of what was sent in place, gives the memory back, and
   * calls `lost` for each flow with the number of the other messages.
   */
  end(error: ZapError, lost: (flow: Flow, messages: number) => void): void {
    this.ended = true;
    const counts = new Map<Flow, number>();
    this.flows.forEach((flow, token) => {
      if (flow === null) return;
      const settle = this.settles[token]!;
      const block = this.blocks[token]!;
      this.flows[token] = null;
      this.settles[token] = null;
      this.blocks[token] = null;
      if (block !== null) this.copies.putBack(block);
      if (settle !== null) settle.failed(error);
      else counts.set(flow, (counts.get(flow) ?? 0) + 1);
    });
    this.queuedBytes = 0;
    this.queuedMessages = 0;
    this.copies.end();
    this.waiting.clear();
    for (const [flow, messages] of counts) lost(flow, messages);
  }
}
