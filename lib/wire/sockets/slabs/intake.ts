/** Drives the reader of one connection: from Bun's chunks where Bun reads (TLS), from the socket itself where we do. */
import { ZapError } from "../../../errors/index.ts";
import type { SlabBuffer } from "../../../memory/index.ts";
import { HeapPlace, type Place } from "./place.ts";
import type { SlabMemory } from "./memory.ts";
import type { NativeSource, Readable } from "./poller.ts";
import { SlabReader, type SlabLender, type SlabSink } from "./reader.ts";
import { ChunkSource } from "./source.ts";

/** Read of one connection before the others have their turn. */
const TURN_BYTES = 256 * 1024;

/** Read in one turn, this says that bytes are streaming in. */
const STREAMING_BYTES = 32 * 1024;

/** The connection. */
export interface IntakeOwner extends SlabSink {
  /** What is read is thrown away: it must not wait for memory. */
  readonly discarding: boolean;
  /** The socket gave bytes. */
  onRead(): void;
  /** The frames among what was read are delivered. */
  onTurn(framesBefore: number): void;
  /** Memory ran out (true), or is there again (false). */
  onStarved(starved: boolean): void;
  /** The far end has half-closed, and everything before is delivered. */
  onStreamEnd(): void;
  onStreamBroken(cause: Error): void;
}

export class SlabIntake implements SlabLender, Readable {
  readonly reader: SlabReader;
  private readonly owner: IntakeOwner;
  private readonly memory: SlabMemory;
  private readonly chunks = new ChunkSource();
  private native: NativeSource | null = null;
  /** The slab that we waited for. */
  private granted: SlabBuffer | null = null;
  private asking: AbortController | null = null;
  private queued = false;
  private running = false;
  /** Something has changed while it was running. */
  private again = false;
  private closed = false;

  constructor(
    owner: IntakeOwner,
    memory: SlabMemory,
    frameBytes: number,
    versions: readonly number[] | undefined,
  ) {
    this.owner = owner;
    this.memory = memory;
    this.reader = new SlabReader(owner, this, memory.stream, frameBytes, versions);
  }

  /** From now on the bytes are read from `fd` natively; Bun must read no more. False where that cannot be had. */
  goNative(fd: number): boolean {
    if (this.memory.poller === null || this.closed) return false;
    try {
      this.native = this.memory.poller.add(fd, this);
    } catch (error) {
      // No file descriptor is left for it, say. Bun can still read.
      if (!(error instanceof ZapError)) throw error;
    }
    return this.native !== null;
  }

  get isNative(): boolean {
    return this.native !== null;
  }

  /** Bytes copied from one place in memory to another so far. */
  get copiedBytes(): number {
    return this.reader.copiedBytes + this.chunks.copiedBytes;
  }

  /** What Bun has read. */
  feed(chunk: Uint8Array): void {
    this.chunks.push(chunk);
    this.go();
  }

  /** Bun will read no more. */
  end(): void {
    this.chunks.ended = true;
    this.go();
  }

  onReadable(): void {
    this.go();
  }

  /** Reads what there is, unless that is not possible now. */
  go(): void {
    if (this.queued) return;
    if (this.running) {
      this.again = true;
      return;
    }
    this.running = true;
    this.again = false;
    try {
      this.run(TURN_BYTES);
    } catch (error) {
      // One connection's trouble must not reach those that are read after it.
      this.owner.onStreamBroken(error instanceof Error ? error : new Error(String(error)));
    } finally {
      this.running = false;
    }
    // A slab that somebody else's reading made unnecessary.
    this.granted?.release();
    this.granted = null;
    if (this.again && !this.queued && !this.closed) this.later();
  }

  /** Reads what can still be read of a socket that is no more. */
  drain(): void {
    this.native?.begin();
    if (!this.running && this.native !== null) this.reader.turn(this.native, Infinity);
  }

  private run(budget: number): void {
    const { owner, reader, chunks, native } = this;
    if (this.closed || this.owner.paused) return;
    const framesBefore = reader.frames;
    if (native === null || !chunks.empty) {
      const end = reader.turn(chunks, Infinity);
      owner.onTurn(framesBefore);
      if (end === "ended") owner.onStreamEnd();
      if (native === null || end !== "nothing") return;
    }
    native.begin();
    const readBefore = native.readBytes;
    const end = reader.turn(native, budget);
    if (native.readBytes > readBefore) owner.onRead();
    if (this.isClosed()) return;
    owner.onTurn(framesBefore);
    if (this.isClosed()) return;
    // Where much has come, more has probably come while that was read: looking is cheaper than being woken.
    if (end === "nothing" && native.readBytes - readBefore < STREAMING_BYTES) native.arm();
    else if (end === "nothing" || end === "budget") this.later();
    else if (end === "ended") owner.onStreamEnd();
    else if (end === "broken" && native.fault !== null) owner.onStreamBroken(native.fault);
  }

  private isClosed(): boolean {
    return this.closed;
  }

  private later(): void {
    this.queued = true;
    setImmediate(() => {
      this.queued = false;
      this.go();
    });
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.native?.close();
    this.chunks.clear();
    this.reader.close();
    this.granted?.release();
    this.granted = null;
    this.asking?.abort();
    this.memory.copiedBytes += this.copiedBytes;
  }

  slab(bytes: number): Place | null {
    if (this.owner.discarding) return new HeapPlace(bytes);
    const { granted } = this;
    this.granted = null;
    if (granted !== null) {
      if (granted.size === bytes) return granted;
      granted.release();
    }
    const slab = this.memory.pool.tryAlloc(bytes);
    if (slab === null) this.ask(bytes);
    return slab;
  }

  private ask(bytes: number): void {
    if (this.asking !== null) return;
    const asking = new AbortController();
    this.asking = asking;
    this.owner.onStarved(true);
    this.memory.alloc(bytes, { signal: asking.signal }).then(
      (slab) => {
        this.asking = null;
        if (this.closed) return slab.release();
        this.granted = slab;
        this.owner.onStarved(false);
      },
      (error: ZapError) => {
        this.asking = null;
        if (!this.closed) this.owner.fatal(error);
      },
    );
  }
}
