/** A slab with messages in it: it goes back to the pool when the last of them is released and nobody reads into it any more. */
import type { Buffer, SlabBuffer } from "../../../memory/index.ts";
import type { MessageMemory } from "../inbox.ts";
import { MessageBuffer } from "./message-buffer.ts";

export class SlabShare implements MessageMemory {
  readonly slab: SlabBuffer;
  /** All of the slab. */
  readonly bytes: Uint8Array;
  /** Views of messages are empty once those are released. */
  readonly strict: boolean;
  /** Messages not released yet, and one for whoever reads into it. */
  holders: number;

  constructor(slab: SlabBuffer, holders: number, strict: boolean) {
    this.slab = slab;
    this.bytes = slab.bytes;
    this.holders = holders;
    this.strict = strict;
  }

  letGo(): void {
    if (--this.holders === 0) this.slab.release();
  }

  bufferOf(start: number, end: number, releaseEnvelope: () => void): Buffer {
    return new MessageBuffer(this.slab, start, end, this.strict, {
      releaseEnvelope,
      letGo: () => this.letGo(),
      // It keeps its holder for ever.
      lose: () => {},
    });
  }
}
