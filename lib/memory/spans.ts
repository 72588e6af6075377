/** Ranges of regions, for checks of headers and for signatures: as the shims take it (`zap_span` and the packed versions of `zap_uma.h`). */
import { ConfigError } from "../errors/index.ts";
import { UMA_SPAN } from "../ffi/index.ts";

/** A range of a region: in a check of headers, with a ZAP header at its start. */
export interface HeaderSpan {
  /** `Region.handle`. */
  readonly region: number;
  /** Bytes from the start of what `region` stands for; may be 4 GiB and more. */
  readonly offset: number;
  readonly length: number;
}

export function packSpans(spans: readonly HeaderSpan[]): Uint8Array {
  const packed = new Uint8Array(spans.length * UMA_SPAN.bytes);
  const view = new DataView(packed.buffer);
  spans.forEach(({ region, offset, length }, index) => {
    const at = index * UMA_SPAN.bytes;
    view.setInt32(at + UMA_SPAN.at.region, region, true);
    view.setUint32(at + UMA_SPAN.at.length, length, true);
    // Two halves, as a `bigint` for each of many spans would cost more than all the rest.
    view.setUint32(at + UMA_SPAN.at.offset, offset, true);
    view.setUint32(at + UMA_SPAN.at.offset + 4, offset / 2 ** 32, true);
  });
  return packed;
}

/** Up to four versions from 1 to 65,535, 16 bits each, the first lowest; 0 stands for none. */
export function packVersions(versions: readonly number[]): bigint {
  const good = versions.every((version) => Number.isInteger(version) && version > 0 && version <= 0xffff);
  if (!good || versions.length > 4)
    throw new ConfigError("versions: up to four numbers from 1 to 65,535 are needed");
  return versions.reduceRight((packed, version) => (packed << 16n) | BigInt(version), 0n);
}

/** Where a packed batch of signatures lies. `table` has 24 bytes per signature and starts at a multiple of 4, `codes` gets one byte. */
export interface VerifySpans {
  readonly bytes: HeaderSpan;
  readonly table: HeaderSpan;
  readonly codes: HeaderSpan;
  readonly count: number;
}

export function packVerifySpans({
  bytes,
  table,
  codes,
}: VerifySpans): readonly [Uint8Array, Uint8Array, Uint8Array] {
  return [packSpans([bytes]), packSpans([table]), packSpans([codes])];
}
