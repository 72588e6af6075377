/** What a kind of memory is to the pool: large regions, who can reach them, and the fences between those who take turns. */

/**
 * `heap` is the process's own memory, `hugepages` and `locked` (ordinary pages, locked) what a NIC was given; the others are named after the runtime that gives the
 * memory.
 */
export type KindName = "heap" | "hugepages" | "locked" | "cuda" | "hip" | "metal";

/** Who can read and write the memory in place. */
export interface Reach {
  readonly cpu: boolean;
  readonly gpu: boolean;
  /** Whether a NIC can be given this memory to send from and receive into. */
  readonly nic: boolean;
}

/** One allocation of the runtime. It belongs to whoever asked for it, until `free()`. */
export interface Region {
  /** Exactly as many as were asked for, whatever the runtime rounds up to. */
  readonly bytes: number;
  /** Where the CPU finds it, aligned to a page; 0 where the CPU cannot reach it. */
  readonly address: number;
  /** Where the device finds it; null where there is no device. */
  readonly devicePtr: bigint | null;
  /** What the shim knows the region by, or the larger one that it is a part of; 0 where there is no shim. */
  readonly handle: number;
  /** Where the region begins in what `handle` stands for, in bytes; 0 where it is all of that. */
  readonly handleOffset: number;
  /** Gives the memory back to the runtime. Nobody may touch it any more. Throws a `ZapError` where the runtime fails. */
  free(): void;
}

/**
 * A kind of memory, opened. Contents of fresh memory are arbitrary. Large regions are reserved: a kind that can leaves their pages
 * untouched until somebody writes to them.
 */
export interface MemoryKind {
  readonly name: KindName;
  readonly reach: Reach;
  /** `bytes` is a positive whole number. Throws a `ZapError` that says what failed, out of memory above all. */
  allocRegion(bytes: number): Region;
  /** Everything that the CPU wrote is visible to kernels launched from now on. Throws or rejects where the device fails. */
  fenceToDevice(): void | Promise<void>;
  /** Waits until no kernel runs, and everything that they wrote is visible to the CPU. Throws or rejects likewise. */
  fenceToHost(): void | Promise<void>;
  /** Lets go of the device. Called once, and only when every region was freed. */
  close(): void | Promise<void>;
}
