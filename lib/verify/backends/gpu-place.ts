/** Batches that lie in unified memory already, so that a GPU verifies them where they are. */
import { ConfigError } from "../../errors/index.ts";
import {
  deviceBehind,
  isSlabBuffer,
  type Buffer,
  type DeviceMemory,
  type SlabBuffer,
} from "../../memory/index.ts";
import type { PackedBatch } from "../contract.ts";

/** Which buffer an `ArrayBuffer` is a view of. One that was released since tells so when it is lent. */
const places = new WeakMap<ArrayBufferLike, SlabBuffer>();

/**
 * The packed batch of `count` items that lie in `buffer`, an envelope's or an allocated one: offsets in `table` count from its start. A GPU
 * backend that reaches this memory reads it in place, and no copy is made; every other backend takes it like any packed batch. The buffer must
 * not be written until the answer is there; released meanwhile, it goes back to its pool when the GPU has finished.
 *
 * Throws `ClosedError` for a released buffer, `ConfigError` for a table that is too short.
 */
export function batchInPlace(buffer: Buffer, table: Uint32Array, count: number): PackedBatch {
  const { bytes } = buffer;
  if (!Number.isSafeInteger(count) || count < 0 || table.length < 6 * count)
    throw new ConfigError(
      `a batch of ${count} items needs a table of 6 numbers for each, not ${table.length}`,
    );
  if (isSlabBuffer(buffer) && deviceBehind(buffer.kind) !== null) places.set(bytes.buffer, buffer);
  return { bytes, table, count };
}

/**
 * Lends the buffer behind `bytes`, so that a release of it takes effect only when the returned function is called: whichever backend verifies, and
 * the CPU in the place of a device, too. Null where there is no such buffer. Throws `ClosedError` where it was released, `OwnerError` where it
 * cannot be lent.
 */
export function lendPlace(bytes: Uint8Array): (() => void) | null {
  const buffer = places.get(bytes.buffer);
  if (buffer === undefined) return null;
  const idle = Promise.withResolvers<void>();
  buffer.lend(idle.promise);
  return () => {
    buffer.returned(null);
    idle.resolve();
  };
}

/** Bytes in a buffer of a device's memory. */
export interface Place {
  readonly device: DeviceMemory;
  readonly buffer: SlabBuffer;
  /** Where they start in the region that the device knows, in bytes. */
  readonly region: number;
  readonly offset: number;
  readonly length: number;
}

/** Where `bytes` lie, for a CUDA device that verifies; null where they have to be copied. Throws `ClosedError` for a released buffer. */
export function placeOf(bytes: Uint8Array): Place | null {
  const buffer = places.get(bytes.buffer);
  if (buffer === undefined) return null;
  const device = deviceBehind(buffer.kind);
  if (device === null || device.name !== "cuda" || !device.device.flags.has("verify")) return null;
  if (bytes.byteOffset + bytes.length > buffer.size) return null;
  const { regionHandle: region, regionOffset } = buffer;
  return { device, buffer, region, offset: regionOffset + bytes.byteOffset, length: bytes.length };
}
