/**
 * What every read must give, worked out a second way: from one `DataView` over the whole surroundings of a message, with the
 * bounds written out. Positions are relative to the message's start.
 */
export class Reference {
  readonly view: DataView;
  readonly start: number;
  size = 0;

  constructor(arena: Uint8Array, start: number) {
    this.view = new DataView(arena.buffer, arena.byteOffset, arena.byteLength);
    this.start = start;
  }

  /** Where a field of an object lies, or -1 where it lies nowhere. */
  field(object: number, field: number): number {
    const real = object !== 0 && Number.isInteger(field) && field >= 0 && field < 2 ** 32;
    return real ? object + field : -1;
  }

  inside(at: number, width: number): boolean {
    return at >= 16 && at + width <= this.size;
  }

  uint8(at: number): number {
    return this.inside(at, 1) ? this.view.getUint8(this.start + at) : 0;
  }

  uint16(at: number): number {
    return this.inside(at, 2) ? this.view.getUint16(this.start + at, true) : 0;
  }

  uint32(at: number): number {
    return this.inside(at, 4) ? this.view.getUint32(this.start + at, true) : 0;
  }

  uint64(at: number): bigint {
    return this.inside(at, 8) ? this.view.getBigUint64(this.start + at, true) : 0n;
  }

  int8(at: number): number {
    return this.inside(at, 1) ? this.view.getInt8(this.start + at) : 0;
  }

  int16(at: number): number {
    return this.inside(at, 2) ? this.view.getInt16(this.start + at, true) : 0;
  }

  int32(at: number): number {
    return this.inside(at, 4) ? this.view.getInt32(this.start + at, true) : 0;
  }

  int64(at: number): bigint {
    return this.inside(at, 8) ? this.view.getBigInt64(this.start + at, true) : 0n;
  }

  float32(at: number): number {
    return this.inside(at, 4) ? this.view.getFloat32(this.start + at, true) : 0;
  }

  float64(at: number): number {
    return this.inside(at, 8) ? this.view.getFloat64(this.start + at, true) : 0;
  }

  /** Where the data of a text or bytes slot lies, or 0; its length is then that of the slot. */
  data(at: number): number {
    if (!this.inside(at, 8)) return 0;
    const relative = this.uint32(at);
    const length = this.uint32(at + 4);
    return relative !== 0 && length !== 0 && this.inside(at + relative, length) ? at + relative : 0;
  }

  /** Where a signed pointer leads, or 0. */
  target(at: number): number {
    const relative = this.int32(at);
    return relative !== 0 && this.inside(at + relative, 1) ? at + relative : 0;
  }

  /** Where a list of elements of `stride` bytes starts, or 0; its length is then that of the slot. */
  list(at: number, stride: number): number {
    if (!this.inside(at, 8) || !Number.isInteger(stride) || stride <= 0) return 0;
    const target = this.target(at);
    return target !== 0 && this.uint32(at + 4) * stride <= this.size - target ? target : 0;
  }
}
