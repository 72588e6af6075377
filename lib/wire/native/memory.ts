/**
 * The node's memory as JavaScript sees it: one view of everything that messages may lie in, the pool over a part of it, and the end of
 * both. The region is unmapped when the node is closed, the pool has come to its end, every envelope was released and every view is
 * empty; never, where somebody has transferred the view away, because he sees that memory for ever.
 */
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { PoolError } from "../../errors/index.ts";
import { SlabPool, type LeakReport, type MemoryKind, type PoolReport } from "../../memory/index.ts";
import type { MessagePlace } from "../common/message-buffer.ts";
import type { NativeEngine } from "./engine.ts";

/** The GPU's view of the whole region, where one knows it. */
export interface RegionOnDevice {
  readonly devicePtr: bigint;
  readonly handle: number;
}

/** Memory of a GPU's own that messages are received into: the CPU has no address for it. It ends with the pool's kind. */
export interface ReceivedOnDevice {
  /** Of `reach.cpu` false. */
  readonly kind: MemoryKind;
  /** Where the GPU finds it, and the NIC. */
  readonly address: number;
  /** What the GPU's shim knows it by. */
  readonly handle: number;
  /** Fills `into` from `offset` on. Throws `ShimError`. */
  copy(offset: number, into: Uint8Array): void;
}

export interface MemoryOptions {
  readonly debug: boolean;
  /** The environment variable that says how large the region is. */
  readonly setting: string;
  /** Where received messages lie, if not in the region. */
  readonly received?: ReceivedOnDevice | null;
  /** Closing the kind gives the region itself back: it is not the native side's. */
  readonly kindOwnsRegion?: boolean;
  readonly onLeak: (report: LeakReport) => void;
  /** Told of what goes wrong beside any call. */
  readonly onFault: (error: PoolError) => void;
}

export class NodeMemory {
  readonly pool: SlabPool;
  /** All of the region that messages may lie in: it without its rings. */
  readonly place: MessagePlace;
  readonly address: number;
  readonly bytes: number;
  readonly debug: boolean;
  /** Null where received messages lie in `place`, too. */
  readonly received: ReceivedOnDevice | null;
  /** Bytes of received messages that were copied out of `received`. */
  copiedBytes = 0;
  /** Envelopes that were not released, and messages that the node still sends. */
  held = 0;
  private readonly engine: NativeEngine;
  private readonly closeKind: () => void | Promise<void>;
  private readonly onFault: (error: PoolError) => void;
  private readonly kindOwnsRegion: boolean;
  private view: Uint8Array | null = null;
  private escaped = false;
  private nodeClosed = false;
  private poolClosed = false;
  private ended = false;

  /** Takes over `kind`, which is over the pool's area, and with it the pool and the region. */
  constructor(engine: NativeEngine, kind: MemoryKind, device: RegionOnDevice | null, options: MemoryOptions) {
    const { address, bytes, memoryOffset, poolBytes } = engine.info;
    this.engine = engine;
    this.address = address + memoryOffset;
    this.bytes = bytes - memoryOffset;
    this.debug = options.debug;
    this.received = options.received ?? null;
    this.onFault = options.onFault;
    this.kindOwnsRegion = options.kindOwnsRegion ?? false;
    this.place = {
      kind,
      address: this.address,
      devicePtr: device === null ? null : device.devicePtr + BigInt(memoryOffset),
      regionHandle: device?.handle ?? 0,
      regionOffset: device === null ? 0 : memoryOffset,
    };
    // The device must know the memory as long as a received message is out, which may be longer than the pool lasts.
    this.closeKind = kind.close.bind(kind);
    kind.close = () => {
      this.poolClosed = true;
      return this.changed();
    };
    this.pool = new SlabPool(kind, {
      poolBytes,
      setting: options.setting,
      debug: options.debug,
      onLeak: options.onLeak,
    });
  }

  /** Messages that lie here are `look().subarray(...)`. Also where a user has transferred an earlier view away. */
  look(): Uint8Array {
    if (this.view !== null && this.view.length > 0) return this.view;
    if (this.view !== null) this.escape();
    return (this.view = new Uint8Array(toArrayBuffer(this.address as Pointer, 0, this.bytes)));
  }

  /** Where `address` lies in the view, or -1 where `length` bytes from there are not all in it. */
  offsetOf(address: number, length: number): number {
    const offset = address - this.address;
    return offset >= 0 && offset + length <= this.bytes ? offset : -1;
  }

  /** A copy on the heap of what was received into a GPU's own memory. Throws `ShimError`. */
  copyReceived(offset: number, length: number): Uint8Array {
    const copy = new Uint8Array(length);
    this.received!.copy(offset, copy);
    this.copiedBytes += length;
    return copy;
  }

  hold(): void {
    this.held++;
  }

  letGo(): void {
    if (--this.held === 0 && this.nodeClosed) this.endLater();
  }

  /** The node is closed: nothing native touches the region any more. Resolves with what is still out. */
  async close(): Promise<PoolReport> {
    this.nodeClosed = true;
    const report = await this.pool.close({ outstanding: "report" });
    await this.changed();
    return { ...report, buffers: report.buffers + this.held };
  }

  private endLater(): void {
    const failed = (cause: unknown): void =>
      this.onFault(
        new PoolError(`the ${this.engine.name} region could not be given back: ${textOf(cause)}`, { cause }),
      );
    try {
      Promise.resolve(this.changed()).catch(failed);
    } catch (cause) {
      failed(cause);
    }
  }

  private changed(): void | Promise<void> {
    if (this.ended || !this.nodeClosed || !this.poolClosed || this.held > 0) return;
    this.ended = true;
    this.dropView();
    // Somebody sees it for ever: then it has to stay.
    if (this.escaped && this.kindOwnsRegion) return;
    const closed = this.closeKind();
    if (closed instanceof Promise) return closed.then(() => this.unmap());
    this.unmap();
  }

  private dropView(): void {
    if (this.view !== null && this.view.length === 0) this.escape();
    if (this.view !== null && !this.escaped) {
      const { view } = this;
      try {
        (view.buffer as ArrayBuffer).transfer(0);
      } catch {
        // Told by the length below.
      }
      // One that is pinned is copied, and stays what it was.
      if (view.length > 0) this.escape();
    }
  }

  private unmap(): void {
    if (!this.escaped) this.engine.freeRegion();
  }

  private escape(): void {
    if (this.escaped) return;
    this.escaped = true;
    const text = `the ArrayBuffer of a received message was transferred away: its memory, the whole ${this.engine.name} region, is never given back`;
    this.onFault(new PoolError(text));
  }
}

function textOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
