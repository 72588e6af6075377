/**
 * The ends of the native side's rings that are ours, over typed arrays: no FFI and no allocation for a message. The layout is that of
 * `shim/include/zap_ring.h`; numbers are little-endian, as on every machine that we run on.
 *
 * Counts have 64 bits in memory. Of the other side's the low 32 are read, which is enough for a difference; our own are written whole
 * whenever the high half changes.
 */
import { RING, RING_ENTRY, RING_MAGIC, RING_VERSION } from "../../ffi/index.ts";
import { ShimError } from "../../errors/index.ts";

const TAIL = RING.at.tail / 4;
const HEAD = RING.at.head / 4;
const ARMED = RING.at.armed / 4;
const HALF = 2 ** 32;
/** Named where no library is behind the memory. */
const RINGS = "zap_ring.h";

/** Words of 32 bits from an entry's start. */
export const ENTRY_ADDRESS = RING_ENTRY.at.address / 4;
export const ENTRY_LENGTH = RING_ENTRY.at.length / 4;
export const ENTRY_PEER = RING_ENTRY.at.peer / 4;
export const ENTRY_TOKEN = RING_ENTRY.at.token / 4;

class RingEnd {
  readonly slots: number;
  /** All entries, as words of 32 bits. */
  readonly words: Uint32Array;
  protected readonly head: Int32Array;
  private readonly counts: BigInt64Array;
  private readonly mask: number;
  private readonly entryWords: number;
  /** Our own count: its low half as an `i32`, and its high half. */
  protected low: number;
  private high: number;
  private readonly ownAt: number;

  /** Throws `ShimError` where there is no such ring. */
  constructor(memory: ArrayBuffer, offset: number, entryBytes: number, library: string, ownAt: number) {
    const head = new Int32Array(memory, offset, RING.bytes / 4);
    const [magic, version, slots = 0, bytes] = head;
    if (magic !== RING_MAGIC || version !== RING_VERSION || bytes !== entryBytes || !isPowerOfTwo(slots))
      throw new ShimError(library, null, `no ring with entries of ${entryBytes} bytes at ${offset}`);
    this.head = head;
    this.counts = new BigInt64Array(memory, offset, RING.bytes / 8);
    this.words = new Uint32Array(memory, offset + RING.bytes, (slots * entryBytes) / 4);
    this.slots = slots;
    this.mask = slots - 1;
    this.entryWords = entryBytes / 4;
    this.ownAt = ownAt;
    const own = Atomics.load(this.counts, ownAt / 2);
    this.low = Number(BigInt.asIntN(32, own));
    this.high = Number(own >> 32n);
  }

  /** Entries that were ever produced or consumed here. */
  get count(): number {
    return this.high * HALF + (this.low >>> 0);
  }

  /** Where entry `ahead` places behind our count begins in `words`. */
  at(ahead: number): number {
    return ((this.low + ahead) & this.mask) * this.entryWords;
  }

  /** Tells the other side: `by` entries more, at most as many as there are slots. */
  protected advance(by: number): void {
    const before = this.low >>> 0;
    this.low = (this.low + by) | 0;
    if (before + by < HALF) return void Atomics.store(this.head, this.ownAt, this.low);
    this.high++;
    Atomics.store(this.counts, this.ownAt / 2, BigInt(this.count));
  }
}

/** Takes entries out. */
export class RingConsumer extends RingEnd {
  constructor(
    memory: ArrayBuffer,
    offset: number,
    entryBytes: number = RING_ENTRY.bytes,
    library: string = RINGS,
  ) {
    super(memory, offset, entryBytes, library, HEAD);
  }

  /** Entries that can be read. */
  get available(): number {
    return (Atomics.load(this.head, TAIL) - this.low) | 0;
  }

  /** The first `entries` are done with. */
  consume(entries: number): void {
    this.advance(entries);
  }

  /** Asks to be woken by the next entry. False where there is one already: then nobody wakes us. */
  arm(): boolean {
    Atomics.store(this.head, ARMED, 1);
    if (this.available === 0) return true;
    Atomics.store(this.head, ARMED, 0);
    return false;
  }

  get armed(): boolean {
    return Atomics.load(this.head, ARMED) !== 0;
  }
}

/** Puts entries in. */
export class RingProducer extends RingEnd {
  /** Called behind an entry where the native side sleeps until it is told: it wakes it. Null where that side never sleeps. */
  onArmed: (() => void) | null = null;

  constructor(
    memory: ArrayBuffer,
    offset: number,
    entryBytes: number = RING_ENTRY.bytes,
    library: string = RINGS,
  ) {
    super(memory, offset, entryBytes, library, TAIL);
  }

  /** Entries that can be written. */
  get room(): number {
    return this.slots - ((this.low - Atomics.load(this.head, HEAD)) | 0);
  }

  /** The entry at `at(0)` was written. */
  publish(): void {
    this.advance(1);
    if (this.onArmed === null || Atomics.load(this.head, ARMED) === 0) return;
    Atomics.store(this.head, ARMED, 0);
    this.onArmed();
  }
}

function isPowerOfTwo(value: number): boolean {
  return value > 0 && (value & (value - 1)) === 0;
}
