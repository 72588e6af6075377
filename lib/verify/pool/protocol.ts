/**
 * What the pool and its workers say to each other, and the words of memory that they share.
 *
 * A *slice* is a part of a batch in shared memory, cut into *ranges* of a few milliseconds of work. Each worker takes the next free range by
 * itself, so that none waits for the event loop of the program. `control` is an `Int32Array`: three words, and then one for each
 * range, which is `FREE`, the id of the worker that has taken it (above 0), or `DONE`. A range is taken with one compare-and-exchange, so
 * there is no moment at which a worker could end and leave a range that belongs to nobody.
 */
import type { Params } from "../contract.ts";

/** Both sides must have been built from the same version of these files. */
export const PROTOCOL = 2;

/** Word of `control`: where to begin to look for a free range. A hint and no more. */
export const HINT = 0;
/** Word of `control`: `QUIET`, `REPORT` or `STOP`. */
export const FLAG = 1;
/** Word of `control`: how many ranges are done. */
export const FINISHED = 2;
/** The word of range 0. */
export const STATES = 3;

/** The worker that finishes the last range says so. */
export const QUIET = 0;
/** Every worker says so after every range: a worker was lost, and `FINISHED` may have missed one of its ranges. */
export const REPORT = 1;
/** Nobody takes a range any more, and who still has one says when it is done. */
export const STOP = 2;

export const FREE = 0;
export const DONE = -1;

/** To a worker: a slice to take ranges of. */
export interface SliceMessage {
  readonly slice: number;
  /** Ranges are taken from each batch in turn, whatever the number of its slices. */
  readonly batch: number;
  readonly scheme: string;
  readonly params: Params;
  readonly bytes: Uint8Array;
  readonly table: Uint32Array;
  readonly count: number;
  readonly codes: Uint8Array;
  readonly control: Int32Array;
  /** The first item of each range, and `count` after them. */
  readonly starts: Uint32Array;
}

/** To a worker, first of all. */
export interface HelloMessage {
  readonly id: number;
}

export type ToWorker = SliceMessage | HelloMessage;

/** From a worker: it has begun; look at that slice; it cannot go on, and why. */
export type FromWorker =
  { readonly ready: number } | { readonly slice: number } | { readonly failed: string };
