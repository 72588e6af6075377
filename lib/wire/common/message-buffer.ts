/** One received message as a managed buffer: a range of memory that it may share with others. */
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { PoolError } from "../../errors/index.ts";
import { OwnedMemory, POISON, type MemoryKind, type SlabBuffer } from "../../memory/index.ts";

/** Memory of a kind that messages lie in: a slab, or all that a wire receives into. */
export type MessagePlace = Pick<
  SlabBuffer,
  "kind" | "address" | "devicePtr" | "regionHandle" | "regionOffset"
>;

/** Whose the memory of a message is. */
export interface MessageHome {
  /** Views are emptied on release: debug mode. */
  readonly strict: boolean;
  /** The range is nobody's any more. */
  letGo(): void;
  /** The range must go to nobody. */
  spoil(error: Error): void;
  /** All of the place, also where a user has transferred the view of it away. */
  revive(): Uint8Array;
}

export class MessageBuffer extends OwnedMemory implements SlabBuffer {
  readonly kind: MemoryKind;
  readonly size: number;
  private readonly place: MessagePlace;
  private readonly start: number;
  private readonly home: MessageHome;
  private readonly releaseEnvelope: () => void;
  private view: Uint8Array | null = null;

  /** `bytes[start..end)` of the place. `releaseEnvelope` ends the envelope along with the buffer. */
  constructor(
    place: MessagePlace,
    start: number,
    end: number,
    home: MessageHome,
    releaseEnvelope: () => void,
  ) {
    super(home.strict);
    this.kind = place.kind;
    this.place = place;
    this.start = start;
    this.size = end - start;
    this.home = home;
    this.releaseEnvelope = releaseEnvelope;
  }

  get bytes(): Uint8Array {
    this.demandHeld("bytes");
    if (!this.debug) return (this.view ??= this.home.revive().subarray(this.start, this.start + this.size));
    this.demandCpu();
    return (this.view ??= new Uint8Array(toArrayBuffer(this.address as Pointer, 0, this.size)));
  }

  get address(): number {
    this.demandHeld("address");
    return this.place.address + this.start;
  }

  get devicePtr(): bigint | null {
    this.demandHeld("devicePtr");
    const { devicePtr } = this.place;
    return devicePtr === null ? null : devicePtr + BigInt(this.start);
  }

  get regionHandle(): number {
    this.demandHeld("regionHandle");
    return this.place.regionHandle;
  }

  get regionOffset(): number {
    this.demandHeld("regionOffset");
    return this.place.regionOffset + this.start;
  }

  release(): void {
    if (this.released) return;
    this.demandNoNic();
    const { address } = this;
    this.dropViews();
    this.released = true;
    this.releaseEnvelope();
    this.whenIdle(
      () => {
        if (this.debug) new Uint8Array(toArrayBuffer(address as Pointer, 0, this.size)).fill(POISON);
        this.home.letGo();
      },
      (error) => {
        // Nobody may get the range again.
        this.home.spoil(error instanceof Error ? error : new Error(String(error)));
        this.home.letGo();
      },
    );
  }

  /** In debug mode the view has an `ArrayBuffer` of its own. */
  protected dropViews(): void {
    if (this.debug && this.view !== null) {
      const { view } = this;
      const gone = view.length === 0;
      if (!gone) (view.buffer as ArrayBuffer).transfer(0);
      if (gone || view.length > 0) this.spoil(new PoolError("the memory of a message was transferred away"));
    }
    this.view = null;
  }
}
