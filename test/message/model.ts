/** Arbitrary nested values for the property tests: their shape, how to make them, build them and read them back. */
import { expect } from "bun:test";
import fc from "fast-check";
import { POINTER_BYTES, SLOT_BYTES } from "../../lib/message/index.ts";
import type {
  MessageBuilder,
  ObjectBuilder,
  ObjectReader,
  ScalarListBuilder,
} from "../../lib/message/index.ts";

/** What one fixed-width number kind takes on the wire, and its arbitrary. */
export const SCALARS = {
  uint8: { width: 1, arb: fc.integer({ min: 0, max: 0xff }) },
  uint16: { width: 2, arb: fc.integer({ min: 0, max: 0xffff }) },
  uint32: { width: 4, arb: fc.integer({ min: 0, max: 0xffff_ffff }) },
  uint64: { width: 8, arb: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }) },
  int8: { width: 1, arb: fc.integer({ min: -0x80, max: 0x7f }) },
  int16: { width: 2, arb: fc.integer({ min: -0x8000, max: 0x7fff }) },
  int32: { width: 4, arb: fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff }) },
  int64: { width: 8, arb: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }) },
  float32: { width: 4, arb: fc.float() },
  float64: { width: 8, arb: fc.double() },
} as const;
export type ScalarKind = keyof typeof SCALARS;
export const SCALAR_KINDS = Object.keys(SCALARS) as ScalarKind[];

export type Field =
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "scalar"; readonly kind: ScalarKind; readonly value: number | bigint }
  | { readonly type: "text"; readonly value: string }
  | { readonly type: "bytes"; readonly value: Uint8Array }
  | { readonly type: "fixed"; readonly value: Uint8Array }
  | { readonly type: "object"; readonly value: Node | null }
  | { readonly type: "scalars"; readonly kind: ScalarKind; readonly values: readonly (number | bigint)[] }
  | { readonly type: "byteList"; readonly value: Uint8Array }
  | { readonly type: "fixedList"; readonly width: number; readonly values: readonly Uint8Array[] }
  | { readonly type: "pointers"; readonly values: readonly (Node | null)[] }
  | { readonly type: "inline"; readonly values: readonly Node[] }
  | { readonly type: "texts"; readonly values: readonly (string | Uint8Array)[] };

/** How an object's children are built: before it is started, while it is open, or while it is open but finished after it. */
export type Order = "first" | "within" | "after";

export interface Node {
  readonly order: Order;
  readonly fields: readonly Field[];
}

const text = fc.string({ unit: "binary", maxLength: 12 });
const bytes = fc.uint8Array({ maxLength: 12 });

function scalarField(kind: ScalarKind): fc.Arbitrary<Field> {
  return (SCALARS[kind].arb as fc.Arbitrary<number | bigint>).map((value) => ({
    type: "scalar",
    kind,
    value,
  }));
}

const textsField: fc.Arbitrary<Field> = fc
  .array(fc.oneof(text, bytes), { maxLength: 4 })
  .map((values) => ({ type: "texts", values }));

function bytesOf(length: number): fc.Arbitrary<Uint8Array> {
  return fc.uint8Array({ minLength: length, maxLength: length });
}

function fixedListField(width: number): fc.Arbitrary<Field> {
  return fc.array(bytesOf(width), { maxLength: 3 }).map((values) => ({ type: "fixedList", width, values }));
}

function scalarsField(kind: ScalarKind): fc.Arbitrary<Field> {
  return fc
    .array(SCALARS[kind].arb as fc.Arbitrary<number | bigint>, { maxLength: 5 })
    .map((values) => ({ type: "scalars", kind, values }));
}

interface Shape {
  /** Leaves out the lists that Go's builder has no verb for. */
  readonly plain: boolean;
  readonly orders: readonly Order[];
}

/** Objects with everything that the format has, nested up to `depth` levels below the first. */
export function nodes(shape: Shape, depth = 4): fc.Arbitrary<Node> {
  const choices: fc.Arbitrary<Field>[] = [
    fc.boolean().map((value) => ({ type: "bool", value })),
    fc.constantFrom(...SCALAR_KINDS).chain(scalarField),
    text.map((value) => ({ type: "text", value })),
    bytes.map((value) => ({ type: "bytes", value })),
    fc
      .constantFrom(1, 20, 32, 65)
      .chain(bytesOf)
      .map((value) => ({ type: "fixed", value })),
    fc.constantFrom(...SCALAR_KINDS).chain(scalarsField),
    bytes.map((value) => ({ type: "byteList", value })),
  ];
  if (!shape.plain) choices.push(textsField, fc.integer({ min: 1, max: 33 }).chain(fixedListField));
  if (depth > 0) {
    const node = nodes(shape, depth - 1);
    const child = fc.option(node, { freq: 4 });
    choices.push(
      child.map((value) => ({ type: "object", value })),
      fc.array(child, { maxLength: 3 }).map((values) => ({ type: "pointers", values })),
    );
    if (!shape.plain) {
      choices.push(fc.array(node, { maxLength: 3 }).map((values) => ({ type: "inline", values })));
    }
  }
  return fc.record({
    order: fc.constantFrom(...shape.orders),
    fields: fc.array(fc.oneof(...choices), { maxLength: 6 }),
  });
}

export function widthOf(field: Field): number {
  switch (field.type) {
    case "bool":
      return 1;
    case "scalar":
      return SCALARS[field.kind].width;
    case "fixed":
      return field.value.length;
    case "object":
      return POINTER_BYTES;
    default:
      return SLOT_BYTES;
  }
}

/** Fields one after another, without gaps: the format does not ask for aligned fields. An object has at least one byte. */
export function layout(node: Node): { offsets: number[]; dataBytes: number } {
  const offsets: number[] = [];
  let end = 0;
  for (const field of node.fields) {
    offsets.push(end);
    end += widthOf(field);
  }
  return { offsets, dataBytes: Math.max(end, 1) };
}

export function strideOf(values: readonly Node[]): number {
  const largest = Math.max(8, ...values.map((value) => layout(value).dataBytes));
  return Math.ceil(largest / 8) * 8;
}

/** Builds the object and all below it; returns it, still open. The caller finishes it, and then `later`. */
export function build(builder: MessageBuilder, node: Node, later: (() => void)[]): ObjectBuilder {
  const { dataBytes } = layout(node);
  if (node.order !== "first") {
    const object = builder.startObject(dataBytes);
    fill(builder, object, node, later);
    return object;
  }
  // Children first: what each one gives is kept for the setters.
  const sets: ((object: ObjectBuilder, at: number) => void)[] = node.fields.map((field) =>
    prepare(builder, field, node.order, later),
  );
  const object = builder.startObject(dataBytes);
  const { offsets } = layout(node);
  sets.forEach((set, i) => set(object, offsets[i]!));
  return object;
}

export function fill(
  builder: MessageBuilder,
  object: ObjectBuilder,
  node: Node,
  later: (() => void)[],
): void {
  const { offsets } = layout(node);
  node.fields.forEach((field, i) => prepare(builder, field, node.order, later)(object, offsets[i]!));
}

function prepare(
  builder: MessageBuilder,
  field: Field,
  order: Order,
  later: (() => void)[],
): (object: ObjectBuilder, at: number) => void {
  const close = (finish: () => unknown): void => {
    if (order === "after") later.push(() => void finish());
    else finish();
  };
  switch (field.type) {
    case "bool":
      return (object, at) => object.setBool(at, field.value);
    case "scalar":
      return (object, at) => object[`set${capital(field.kind)}`](at, field.value as never);
    case "text":
      return (object, at) => object.setText(at, field.value);
    case "bytes":
      return (object, at) => object.setBytes(at, field.value);
    case "fixed":
      return (object, at) => object.setFixedBytes(at, field.value);
    case "object": {
      const child = field.value && buildFinished(builder, field.value, close);
      return (object, at) => object.setObject(at, child);
    }
    case "scalars": {
      const list = builder.startList(SCALARS[field.kind].width);
      for (const value of field.values) addScalar(list, field.kind, value);
      close(() => list.finish());
      return (object, at) => object.setList(at, list);
    }
    case "byteList": {
      const list = builder.startList(1).addBytes(field.value);
      close(() => list.finish());
      return (object, at) => object.setList(at, list);
    }
    case "fixedList": {
      const list = builder.startList(field.width);
      for (const value of field.values) list.addFixedBytes(value);
      const placed = list.finish();
      return (object, at) => object.setList(at, placed);
    }
    case "pointers": {
      const targets = field.values.map((value) => value && buildFinished(builder, value, close));
      const list = builder.startPointerList();
      for (const target of targets) list.add(target);
      close(() => list.finish());
      return (object, at) => object.setList(at, list);
    }
    case "inline": {
      const list = builder.placeObjects(field.values.length, strideOf(field.values));
      field.values.forEach((value, i) => {
        const element = list.at(i);
        fill(builder, element, value, later);
        close(() => element.finish());
      });
      return (object, at) => object.setList(at, list);
    }
    case "texts": {
      const list = builder.startTextList();
      for (const value of field.values) {
        if (typeof value === "string") list.addText(value);
        else list.addBytes(value);
      }
      close(() => list.finish());
      return (object, at) => object.setList(at, list);
    }
  }
}

function buildFinished(
  builder: MessageBuilder,
  node: Node,
  close: (finish: () => unknown) => void,
): ObjectBuilder {
  const later: (() => void)[] = [];
  const object = build(builder, node, later);
  close(() => {
    object.finish();
    for (const finish of later) finish();
  });
  return object;
}

function capital<K extends string>(kind: K): Capitalize<K> {
  return `${kind[0]!.toUpperCase()}${kind.slice(1)}` as Capitalize<K>;
}

function addScalar(list: ScalarListBuilder, kind: ScalarKind, value: number | bigint): void {
  list[`add${capital(kind)}`](value as never);
}

/** Expects that the object reads back as `node`, all the way down. */
export function expectObject(object: ObjectReader, node: Node): void {
  expect(object.isNull).toBe(false);
  const { offsets } = layout(node);
  node.fields.forEach((field, i) => expectField(object, offsets[i]!, field));
}

function expectField(object: ObjectReader, at: number, field: Field): void {
  switch (field.type) {
    case "bool":
      expect(object.bool(at)).toBe(field.value);
      return;
    case "scalar":
      expect(object[field.kind](at)).toBe(field.value);
      return;
    case "text":
      expect(object.text(at)).toBe(field.value);
      return;
    case "bytes":
      expect(object.bytes(at)).toEqual(field.value);
      return;
    case "fixed":
      expect(object.fixedBytes(at, field.value.length)).toEqual(field.value);
      return;
    case "object":
      if (field.value === null) expect(object.object(at).isNull).toBe(true);
      else expectObject(object.object(at), field.value);
      return;
    case "scalars": {
      const list = object.list(at, SCALARS[field.kind].width);
      expect(list.length).toBe(field.values.length);
      field.values.forEach((value, i) => expect(list[field.kind](i)).toBe(value));
      return;
    }
    case "byteList":
      expect(object.list(at, 1).contents()).toEqual(field.value);
      return;
    case "fixedList": {
      const list = object.list(at, field.width);
      expect(list.length).toBe(field.values.length);
      field.values.forEach((value, i) => expect(list.fixedBytes(i)).toEqual(value));
      return;
    }
    case "pointers": {
      const list = object.list(at, POINTER_BYTES);
      expect(list.length).toBe(field.values.length);
      field.values.forEach((value, i) => {
        if (value === null) expect(list.pointer(i).isNull).toBe(true);
        else expectObject(list.pointer(i), value);
      });
      return;
    }
    case "inline": {
      const list = object.list(at, strideOf(field.values));
      expect(list.length).toBe(field.values.length);
      field.values.forEach((value, i) => expectObject(list.object(i), value));
      return;
    }
    case "texts": {
      const list = object.list(at, SLOT_BYTES);
      expect(list.length).toBe(field.values.length);
      field.values.forEach((value, i) => {
        if (typeof value === "string") expect(list.text(i)).toBe(value);
        else expect(list.bytes(i)).toEqual(value);
      });
      return;
    }
  }
}
