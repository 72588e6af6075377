/** How a shim's functions are written down for `bun:ffi`. */
import type { FFIFunction } from "bun:ffi";

/** The types of C that shims use in calls: `ptr` is any pointer, the others are integers. */
type ShimType = "ptr" | "u32" | "i32" | "u64";

export interface Verb extends FFIFunction {
  readonly args: readonly ShimType[];
  readonly returns: "u32" | "i32";
}

/** All functions of one shim by their name without the prefix. */
export type Verbs = Readonly<Record<string, Verb>>;

interface ArgumentTypes {
  /**
   * A typed array is passed by the place where its bytes lie at the time of the call; a number is an address. A detached array passes
   * as null: check it first.
   */
  ptr: NodeJS.TypedArray | number | null;
  u32: number;
  i32: number;
  /** A number must be a whole one from 0 to 2^53 - 1. */
  u64: number | bigint;
}

type Arguments<A extends readonly ShimType[]> = { [I in keyof A]: ArgumentTypes[A[I]] };

/** The functions themselves. */
export type Calls<T extends Verbs> = {
  readonly [V in keyof T]: (...args: Arguments<T[V]["args"]>) => number;
};

/** A structure of C, little-endian. Fields have the names that they have there. */
export interface Structure {
  readonly bytes: number;
  /** Where each field begins; reserved ones are left out. */
  readonly at: Readonly<Record<string, number>>;
  /** The bytes of each text. */
  readonly texts?: Readonly<Record<string, number>>;
}
