/** A slab with messages in it: it goes back to the pool when the last of them is released and nobody reads into it any more. */
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { isSlabBuffer, type Buffer, type SlabBuffer } from "../../../memory/index.ts";
import type { MessageMemory } from "../inbox.ts";
import { MessageBuffer, type MessageHome } from "../../common/message-buffer.ts";
import type { Place } from "./place.ts";

export class SlabShare implements MessageMemory, MessageHome {
  readonly slab: Place;
  /** All of the slab. */
  bytes: Uint8Array;
  /** Views of messages are empty once those are released. */
  readonly strict: boolean;
  /** Messages not released yet, and one for whoever reads into it. */
  holders: number;
  /** Somebody outside sees this memory: no more may be read into it. */
  spoilt = false;
  /** Called when one holder is left. */
  private readonly onAlone: (() => void) | null;

  constructor(slab: Place, holders: number, strict: boolean, onAlone: (() => void) | null = null) {
    this.slab = slab;
    this.bytes = slab.bytes;
    this.holders = holders;
    this.strict = strict;
    this.onAlone = onAlone;
  }

  hold(messages: number): void {
    this.holders += messages;
  }

  letGo(): void {
    const left = --this.holders;
    if (left === 0) this.slab.release();
    else if (left === 1) this.onAlone?.();
  }

  bufferOf(start: number, end: number, releaseEnvelope: () => void): Buffer | null {
    const { slab } = this;
    if (!isSlab(slab)) return null;
    return new MessageBuffer(slab, start, end, this, releaseEnvelope);
  }

  /** The memory must go to nobody else. */
  spoil(error: Error): void {
    this.spoilt = true;
    if (isSlab(this.slab)) this.slab.spoil(error);
  }

  /** A view of its own for the messages that were not transferred; the pool will give the memory to nobody again. */
  revive(): Uint8Array {
    if (this.bytes.length === 0) {
      this.spoilt = true;
      const { address, size } = this.slab;
      this.bytes = new Uint8Array(toArrayBuffer(address as Pointer, 0, size));
    }
    return this.bytes;
  }
}

function isSlab(place: Place): place is SlabBuffer {
  return isSlabBuffer(place as SlabBuffer);
}
