/** Unified memory that batches are copied to: bytes, table and codes, one after another in one region. */
import { toArrayBuffer, type Pointer } from "bun:ffi";
import type { DeviceMemory, HeaderSpan, Region, VerifySpans } from "../../memory/index.ts";
import { CODE, TABLE_STRIDE, type PackedBatch } from "../contract.ts";
import { locate, newPlace, type Lengths } from "../schemes/items.ts";
import type { Turn } from "../turns.ts";

/** Bytes copied, and items gathered, between two looks at the clock. */
const GO_BYTES = 1024 * 1024;
const GO_ITEMS = 256;

/** What has been copied: items `from` to `to` of a batch. */
export interface Slice {
  readonly from: number;
  readonly to: number;
  /** Bytes in use. */
  readonly bytes: number;
  /** Codes of items that do not get as far as the device, by their number in the slice. */
  readonly known: ReadonlyMap<number, number>;
}

export class Stage {
  readonly #region: Region;
  readonly #bytes: Uint8Array;
  readonly #table: Uint32Array;
  readonly #codes: Uint8Array;

  /** Memory for `items` items of `bytes` bytes in all. Throws `ShimError` where the device has not so much. */
  constructor(memory: DeviceMemory, bytes: number, items: number) {
    const tableAt = Math.ceil(bytes / 64) * 64;
    const codesAt = tableAt + items * TABLE_STRIDE * 4;
    this.#region = memory.allocRegion(codesAt + items);
    const whole = toArrayBuffer(this.#region.address as Pointer, 0, codesAt + items);
    this.#bytes = new Uint8Array(whole, 0, bytes);
    this.#table = new Uint32Array(whole, tableAt, items * TABLE_STRIDE);
    this.#codes = new Uint8Array(whole, codesAt, items);
  }

  get items(): number {
    return this.#codes.length;
  }

  get bytes(): number {
    return this.#bytes.length;
  }

  /** Copies all bytes of a batch, which have room. */
  async fill(bytes: Uint8Array, turn: Turn): Promise<void> {
    for (let at = 0; at < bytes.length; at += GO_BYTES) {
      this.#bytes.set(bytes.subarray(at, at + GO_BYTES), at);
      await turn();
    }
  }

  /** Copies the table's rows of items `from` to `to`, with offsets as they are. */
  rows(table: Uint32Array, from: number, to: number): void {
    this.#table.set(table.subarray(from * TABLE_STRIDE, to * TABLE_STRIDE));
  }

  /**
   * Copies items from `from` on, as many as have room, with rows of their own. At least one, except where that alone is too large: then
   * `bytes` says how much it takes, and `to` is `from`.
   */
  async gather(batch: PackedBatch, from: number, lengths: Lengths, turn: Turn): Promise<Slice> {
    const known = new Map<number, number>();
    const place = newPlace();
    const last = Math.min(batch.count, from + this.items);
    let used = 0;
    let copied = 0;
    let at = from;
    for (; at < last; at++) {
      const row = (at - from) * TABLE_STRIDE;
      const fault = locate(batch, at, lengths, place);
      if (fault !== null) {
        known.set(at - from, fault);
        this.#table.fill(0, row, row + TABLE_STRIDE);
        continue;
      }
      const size = place.keyLength + place.messageLength + place.signatureLength;
      if (used + size > this.bytes) {
        if (at === from) return { from, to: from, bytes: size, known };
        break;
      }
      const offsets = [place.key, place.message, place.signature] as const;
      const sizes = [place.keyLength, place.messageLength, place.signatureLength] as const;
      for (let part = 0; part < 3; part++) {
        const start = offsets[part]!;
        const length = sizes[part]!;
        for (let done = 0; done < length; done += GO_BYTES) {
          const end = Math.min(length, done + GO_BYTES);
          this.#bytes.set(batch.bytes.subarray(start + done, start + end), used + done);
          if (end < length) await turn();
        }
        this.#table[row + 2 * part] = used;
        this.#table[row + 2 * part + 1] = length;
        used += length;
      }
      copied += size;
      if (copied < GO_BYTES && (at - from) % GO_ITEMS !== GO_ITEMS - 1) continue;
      copied = 0;
      await turn();
    }
    return { from, to: at, bytes: used, known };
  }

  /** The first `count` items, as the device is told of them. `elsewhere`: the bytes lie there, and not in this stage. */
  spans(bytes: number, count: number, elsewhere?: HeaderSpan): VerifySpans {
    const { handle: region, handleOffset } = this.#region;
    const span = (part: Uint8Array | Uint32Array, length: number): HeaderSpan => ({
      region,
      offset: handleOffset + part.byteOffset,
      length,
    });
    return {
      bytes: elsewhere ?? span(this.#bytes, bytes),
      table: span(this.#table, count * TABLE_STRIDE * 4),
      codes: span(this.#codes, count),
      count,
    };
  }

  /** What no kernel writes: one that has not done its work is noticed. */
  forget(count: number): void {
    this.#codes.fill(0xff, 0, count);
  }

  /** A copy of the codes of the first `count` items, as the device wrote them; null where one was not written. */
  answer(count: number): Uint8Array | null {
    const codes = this.#codes.slice(0, count);
    return codes.every((code) => code <= CODE.signatureEncoding) ? codes : null;
  }

  /** The device has let go of it. Throws where the driver fails to free it. */
  free(): void {
    this.#region.free();
  }
}
