/**
 * A second, much simpler builder to compare with: the plain cursor way, as Go peers write messages. It shows the rules of the
 * byte layout in a few lines, and has the traps that ours must not have (nothing is reserved unless `reserve` is called).
 */
import { layout } from "./model.ts";
import type { Node, ScalarKind } from "./model.ts";

export class CursorBuilder {
  readonly #out: number[] = new Array<number>(16).fill(0);

  get end(): number {
    return this.#out.length;
  }

  align(): number {
    while (this.end % 8 !== 0) this.#out.push(0);
    return this.end;
  }

  /** The object's fixed section reaches at least to `end`. */
  reserve(end: number): void {
    while (this.end < end) this.#out.push(0);
  }

  append(bytes: Iterable<number>): number {
    const start = this.end;
    for (const byte of bytes) this.#out.push(byte);
    return start;
  }

  put(at: number, bytes: Iterable<number>): void {
    let i = at;
    for (const byte of bytes) this.#out[i++] = byte;
  }

  message(root: number): Uint8Array {
    this.put(0, [0x5a, 0x41, 0x50, 0, 1, 0, 0, 0]);
    this.put(8, u32(root));
    this.put(12, u32(this.end));
    return Uint8Array.from(this.#out);
  }
}

function u32(value: number): number[] {
  return [value & 255, (value >> 8) & 255, (value >> 16) & 255, (value >> 24) & 255];
}

function scalar(kind: ScalarKind, value: number | bigint): Uint8Array {
  const arrays = {
    uint8: Uint8Array,
    uint16: Uint16Array,
    uint32: Uint32Array,
    uint64: BigUint64Array,
    int8: Int8Array,
    int16: Int16Array,
    int32: Int32Array,
    int64: BigInt64Array,
    float32: Float32Array,
    float64: Float64Array,
  };
  return new Uint8Array(arrays[kind].of(value as never).buffer);
}

/** Writes the object and all below it: children first, or (`within`) after its reserved fixed section. Returns its offset. */
export function writeObject(out: CursorBuilder, node: Node): number {
  const { offsets, dataBytes } = layout(node);
  const children = node.order === "first" ? node.fields.map((_, i) => writeChild(out, node, i)) : null;
  const start = out.align();
  out.reserve(start + dataBytes);
  const deferred: { at: number; data: Uint8Array }[] = [];
  node.fields.forEach((field, i) => {
    const at = start + offsets[i]!;
    if (field.type === "bool") out.put(at, [field.value ? 1 : 0]);
    else if (field.type === "scalar") out.put(at, scalar(field.kind, field.value));
    else if (field.type === "fixed") out.put(at, field.value);
    else if (field.type === "text") deferred.push({ at, data: new TextEncoder().encode(field.value) });
    else if (field.type === "bytes") deferred.push({ at, data: field.value });
    else {
      const child = children?.[i] ?? writeChild(out, node, i);
      if (child.offset !== 0 && child.length !== 0) {
        out.put(at, u32(child.offset - at));
        if (field.type !== "object") out.put(at + 4, u32(child.length));
      }
    }
  });
  for (const { at, data } of deferred) {
    if (data.length === 0) continue;
    out.put(at, u32(out.append(data) - at));
    out.put(at + 4, u32(data.length));
  }
  return start;
}

/** Writes what field `i` points to. An object counts as length 1. */
function writeChild(out: CursorBuilder, node: Node, i: number): { offset: number; length: number } {
  const field = node.fields[i]!;
  switch (field.type) {
    case "object":
      return { offset: field.value === null ? 0 : writeObject(out, field.value), length: 1 };
    case "scalars": {
      const offset = out.align();
      for (const value of field.values) out.append(scalar(field.kind, value));
      return { offset, length: field.values.length };
    }
    case "byteList": {
      const offset = out.align();
      out.append(field.value);
      return { offset, length: field.value.length };
    }
    case "pointers": {
      const targets = field.values.map((value) => (value === null ? 0 : writeObject(out, value)));
      const offset = out.align();
      for (const target of targets) out.append(u32(target === 0 ? 0 : target - out.end));
      return { offset, length: targets.length };
    }
    default:
      return { offset: 0, length: 0 };
  }
}
