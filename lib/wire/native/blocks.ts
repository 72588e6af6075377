/** The memory that messages to be sent are copied into: blocks of the pool that small ones share, and slabs of their own for others. */
import type { SlabBuffer } from "../../memory/index.ts";
import type { NodeMemory } from "./memory.ts";

const BLOCK_BYTES = 64 * 1024;
/** Larger messages get memory of their own. */
const SMALL_BYTES = 16 * 1024;
/** Empty blocks that are kept for the next message. */
const SPARES_MAX = 4;
const ALIGNMENT = 8;

export interface Block {
  readonly buffer: SlabBuffer;
  /** In the memory's view. */
  readonly offset: number;
  used: number;
  /** Messages in it that are on their way. */
  pending: number;
}

export class Blocks {
  /** Where the last message was copied to, in the memory's view. */
  copiedAt = 0;
  private readonly memory: NodeMemory;
  /** Told that there may be memory for those who wait. */
  private readonly onMemory: () => void;
  private current: Block;
  private readonly spares: Block[] = [];
  /** Memory that was waited for, and whether it is. */
  private grant: SlabBuffer | null = null;
  private asking = false;
  private ended = false;

  /** Takes one block for good, so that small messages always get through. Throws what the pool does. */
  constructor(memory: NodeMemory, onMemory: () => void) {
    this.memory = memory;
    this.onMemory = onMemory;
    this.current = this.blockOf(memory.pool.tryAlloc(BLOCK_BYTES, true)!);
  }

  /**
   * Copies a message, and says into which block, at `copiedAt`. Null where there is no memory for it now: `onMemory` is called when there
   * may be. Throws what the pool does where there never will be.
   */
  copy(message: Uint8Array): Block | null {
    const { length } = message;
    const block = length <= SMALL_BYTES ? this.share(length) : this.own(length);
    if (block === null) return null;
    const offset = block.offset + block.used;
    this.memory.look().set(message, offset);
    block.used = (block.used + length + ALIGNMENT - 1) & -ALIGNMENT;
    block.pending++;
    this.copiedAt = offset;
    return block;
  }

  /** One message of it has come back. */
  putBack(block: Block): void {
    if (--block.pending > 0 || block === this.current) return;
    if (this.ended || block.buffer.size !== BLOCK_BYTES || this.spares.length >= SPARES_MAX)
      return block.buffer.release();
    block.used = 0;
    this.spares.push(block);
  }

  /** Nothing is on its way any more, or will come back. */
  end(): void {
    this.ended = true;
    for (const block of [this.current, ...this.spares]) block.buffer.release();
    this.spares.length = 0;
  }

  private share(length: number): Block | null {
    const { current } = this;
    if (current.used + length <= BLOCK_BYTES) return current;
    if (current.pending === 0) {
      current.used = 0;
      return current;
    }
    const next = this.spares.pop() ?? this.own(BLOCK_BYTES);
    if (next !== null) this.current = next;
    return next;
  }

  private own(bytes: number): Block | null {
    const buffer = this.take(bytes);
    return buffer === null ? null : this.blockOf(buffer);
  }

  private blockOf(buffer: SlabBuffer): Block {
    return { buffer, offset: buffer.address - this.memory.address, used: 0, pending: 0 };
  }

  private take(bytes: number): SlabBuffer | null {
    const { grant } = this;
    if (grant !== null && grant.size >= bytes) {
      this.grant = null;
      return grant;
    }
    const buffer = this.memory.pool.tryAlloc(bytes, true);
    if (buffer === null) this.ask(bytes);
    return buffer;
  }

  /** Gets in line for memory, with whoever else wants some of the pool. */
  private ask(bytes: number): void {
    if (this.asking) return;
    this.asking = true;
    const over = (grant: SlabBuffer | null): void => {
      this.asking = false;
      this.grant = grant;
      if (!this.ended) this.onMemory();
      this.grant?.release();
      this.grant = null;
    };
    // Who waits hears of a failure by trying again.
    this.memory.pool.alloc(bytes).then(over, () => over(null));
  }
}
