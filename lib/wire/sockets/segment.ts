/** A piece of an outbox, and the framing inside it. */

import type { Settle } from "../common/settle.ts";
import { uint32In } from "../../message/load.ts";

/** Bytes of the length that precedes each message. */
export const PREFIX_BYTES = 4;

export interface Segment {
  bytes: Uint8Array;
  start: number;
  end: number;
  /** Messages that end in this segment, and their bytes without framing. */
  messages: number;
  payload: number;
  readonly kind: "block" | "direct" | "control";
  /** A frame boundary at or before `start`; for `direct`, where the part that the preceding block does not hold begins. */
  first: number;
  settle: Settle | null;
}

export function segmentOf(bytes: Uint8Array, kind: Segment["kind"], settle: Settle | null): Segment {
  return { bytes, start: 0, end: bytes.length, messages: 0, payload: 0, kind, first: 0, settle };
}

/** A place between two frames, and how many whole frames lie between the block's `first` and it. */
export interface Boundary {
  readonly at: number;
  readonly messages: number;
}

/** The start of the frame that byte `position` of a block falls into. */
export function frameStart(block: Segment, position: number): Boundary {
  let at = block.first;
  let messages = 0;
  while (at < position) {
    const next = at + PREFIX_BYTES + uint32In(block.bytes, at);
    if (next > position) break;
    at = next;
    messages++;
  }
  return { at, messages };
}

export function putLength(bytes: Uint8Array, at: number, length: number): void {
  bytes[at] = length;
  bytes[at + 1] = length >>> 8;
  bytes[at + 2] = length >>> 16;
  bytes[at + 3] = length >>> 24;
}

export function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
