/**
 * A million hostile messages: half random bodies behind a good header, half mutations of good messages. No read may throw, and
 * each must give what the reference gives, which looks at nothing outside the message. The message lies in the middle of a
 * larger buffer full of other bytes, and `parse` is often given more than the message.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { MessageError } from "../../lib/errors/index.ts";
import { HEADER_FAULTS, MessageBuilder, headerFault, parse } from "../../lib/message/index.ts";
import type { ListReader, ObjectReader } from "../../lib/message/index.ts";
import { SCALAR_KINDS, build, layout, nodes } from "./model.ts";
import { Reference } from "./reference.ts";

const INPUTS = 1_000_000;
const seed = Number(process.env["ZAP_TEST_SEED"] ?? 20_260_101) >>> 0 || 1;

const START = 512;
const BODY_MAX = 1024;
const arena = new Uint8Array(new ArrayBuffer(START + BODY_MAX + 512));
const words = new DataView(arena.buffer);
const reference = new Reference(arena, START);
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

// xorshift32: fast, and the same everywhere.
let state = seed;
function random(below: number): number {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % below;
}

function pick<T>(values: readonly T[]): T {
  return values[random(values.length)]!;
}

const WORDS = [0, 1, 4, 8, 16, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff8, 0xffff_fff0, 0x1000_0000];
const ODD_OFFSETS = [-1, -16, 0.5, NaN, Infinity, -Infinity, 2 ** 31, 2 ** 32, 2 ** 53, -0];
const STRIDES = [1, 2, 4, 8, 8, 4, 3, 16, 20, 65, 0, -8, 1.5, NaN, 2 ** 32, Infinity];

/** A word as an attacker, or chance, might put it where a pointer or a length is read. */
function word(size: number): number {
  switch (random(8)) {
    case 0:
      return random(0x1_0000_0000);
    case 1:
      return pick(WORDS);
    case 2:
      return random(size);
    case 3:
    case 4:
    case 5:
      return random(24);
    default:
      return (random(2 * size) - size) >>> 0;
  }
}

/** Half of the inputs: random bodies. Returns how many bytes to hand to `parse`. */
function randomInput(): number {
  const size = 16 + random(120);
  for (let at = 16; at < size; at += 4) words.setUint32(START + at, word(size), true);
  arena.fill(0xa5, START + size, START + size + 4);
  words.setUint32(START, 0x5a415000);
  words.setUint16(START + 4, 1, true);
  words.setUint16(START + 6, random(0x1_0000), true);
  words.setUint32(START + 8, random(4) === 0 ? word(size) : 16 + (random(size) & ~3), true);
  words.setUint32(START + 12, size, true);
  return size + (random(2) === 0 ? 0 : random(64));
}

/** The other half: a good message with a few bytes changed. */
function mutatedInput(): number {
  const source = pick(sources);
  arena.set(source.bytes, START);
  rootFields = source.fields;
  const size = source.bytes.length;
  for (let changes = 1 + random(6); changes > 0; changes--) {
    // Mostly the body and the root offset; a broken header is soon told.
    const at = random(8) === 0 ? random(size) : 8 + random(Math.max(size - 8, 1));
    switch (random(4)) {
      case 0:
        arena[START + at]! ^= 1 << random(8);
        break;
      case 1:
        arena[START + at] = random(256);
        break;
      default:
        if (at < 12 || at >= 16 || random(4) === 0) words.setUint32(START + (at & ~3), word(size), true);
    }
  }
  arena.fill(0xa5, START + size, START + size + 4);
  return random(8) === 0 ? random(size) : size + (random(2) === 0 ? 0 : random(64));
}

const sources: { readonly bytes: Uint8Array; readonly fields: readonly number[] }[] = [];

function makeSources(): void {
  const builder = new MessageBuilder();
  for (const node of fc.sample(nodes({ plain: false, orders: ["first", "within", "after"] }), {
    seed,
    numRuns: 1000,
  })) {
    const later: (() => void)[] = [];
    build(builder.reset(), node, later).finishAsRoot();
    for (const finish of later) finish();
    const bytes = builder.finish({ type: random(256) });
    if (bytes.length > 48 && bytes.length <= BODY_MAX) sources.push({ bytes, fields: layout(node).offsets });
  }
}

// What the current input is, for the message of a failure.
let input = 0;
let given = 0;
/** Where the root's fields were before it was mutated; empty for a random body. */
let rootFields: readonly number[] = [];
/** How often something was really there to read. */
const found = { data: 0, lists: 0, objects: 0 };

function fail(what: string): never {
  throw new Error(what);
}

function check(what: string, seen: unknown, wanted: unknown): void {
  if (!Object.is(seen, wanted)) fail(`${what}: ${String(seen)} read, ${String(wanted)} expected`);
}

/** The view must be the `length` bytes at `at` of the message, in place. */
function checkView(what: string, view: Uint8Array | null, at: number, length: number): void {
  if (view === null) return fail(`${what}: null read, ${length} bytes expected`);
  if (view.length !== length) fail(`${what}: ${view.length} bytes read, ${length} expected`);
  if (length === 0) return;
  if (view.buffer !== arena.buffer || view.byteOffset !== START + at) fail(`${what}: another place read`);
}

function checkData(reader: ObjectReader | ListReader, index: number, at: number): void {
  const data = reference.data(at);
  const length = data === 0 ? 0 : reference.uint32(at + 4);
  checkView("bytes", reader.bytes(index), data, length);
  const wanted = data === 0 ? "" : decoder.decode(arena.subarray(START + data, START + data + length));
  if (reader.text(index) !== wanted) fail("text: something else read");
  if (length > 0) found.data++;
}

function checkScalars(reader: ObjectReader | ListReader, index: number, at: number, widthMax: number): void {
  const at1 = at;
  const at2 = widthMax >= 2 ? at : -1;
  const at4 = widthMax >= 4 ? at : -1;
  const at8 = widthMax >= 8 ? at : -1;
  check("uint8", reader.uint8(index), reference.uint8(at1));
  check("int8", reader.int8(index), reference.int8(at1));
  check("uint16", reader.uint16(index), reference.uint16(at2));
  check("int16", reader.int16(index), reference.int16(at2));
  check("uint32", reader.uint32(index), reference.uint32(at4));
  check("int32", reader.int32(index), reference.int32(at4));
  check("uint64", reader.uint64(index), reference.uint64(at8));
  check("int64", reader.int64(index), reference.int64(at8));
  check("float32", reader.float32(index), reference.float32(at4));
  check("float64", reader.float64(index), reference.float64(at8));
}

function checkFixed(what: string, view: Uint8Array | null, at: number, width: number): void {
  if (!Number.isInteger(width) || width <= 0 || !reference.inside(at, width)) check(what, view, null);
  else checkView(what, view, at, width);
}

function checkList(list: ListReader, at: number, stride: number): ObjectReader {
  const start = reference.list(at, stride);
  const length = start === 0 ? 0 : reference.uint32(at + 4);
  check("list start", list.offset, start);
  check("list length", list.length, length);
  check("list null", list.isNull, start === 0);
  checkView("list contents", list.contents(), start, length * (length === 0 ? 0 : stride));
  if (length > 0) found.lists++;
  const index = random(3) === 0 ? pick(ODD_OFFSETS) : random(length + 1);
  const real = Number.isInteger(index) && index >= 0 && index < length;
  const place = real ? start + index * stride : -1;
  checkScalars(list, index, place, stride);
  checkData(list, index, stride >= 8 ? place : -1);
  checkFixed("list fixedBytes", list.fixedBytes(index), place, stride);
  const inline = list.object(index);
  check("list object", inline.offset, reference.inside(place, 1) ? place : 0);
  const pointed = list.pointer(index);
  check("list pointer", pointed.offset, stride >= 4 ? reference.target(place) : 0);
  return pointed.isNull ? inline : pointed;
}

/** Reads everything at one field; returns an object found there, if any. */
function checkField(object: ObjectReader, field: number): ObjectReader {
  const at = reference.field(object.offset, field);
  checkScalars(object, field, at, 8);
  check("bool", object.bool(field), reference.uint8(at) !== 0);
  checkData(object, field, at);
  checkFixed("address", object.address(field), at, 20);
  checkFixed("hash", object.hash(field), at, 32);
  checkFixed("signature", object.signature(field), at, 65);
  const width = random(8) === 0 ? pick(ODD_OFFSETS) : random(64);
  checkFixed("fixedBytes", object.fixedBytes(field, width), at, width);
  const stride = pick(STRIDES);
  const element = checkList(object.list(field, stride), at, stride);
  const nested = object.object(field);
  check("object", nested.offset, reference.target(at));
  if (!nested.isNull) found.objects++;
  return nested.isNull ? element : nested;
}

function someField(object: ObjectReader, steps: number): number {
  if (random(16) === 0) return pick(ODD_OFFSETS);
  if (steps === 0 && rootFields.length > 0 && random(4) !== 0) return pick(rootFields);
  const field = random(Math.max(reference.size - object.offset, 0) + 4);
  return random(4) === 0 ? field : field & ~3;
}

function checkMessage(): void {
  const message = parse(arena.subarray(START, START + given));
  const size = words.getUint32(START + 12, true);
  reference.size = size;
  checkView("message", message.bytes, 0, size);
  check("size", message.size, size);
  check("flags", message.flags, words.getUint16(START + 6, true));
  check("type", message.type, words.getUint8(START + 7));
  let object = message.root();
  const root = words.getUint32(START + 8, true);
  check("root", object.offset, reference.inside(root, 1) ? root : 0);
  for (let steps = 0; steps < 3; steps++) {
    check("null", object.isNull, object.offset === 0);
    object = checkField(object, someField(object, steps));
  }
}

function checkRefusal(fault: string): void {
  let code = "none";
  try {
    parse(arena.subarray(START, START + given));
  } catch (error) {
    if (!(error instanceof MessageError)) throw error;
    code = error.code;
  }
  check("code", code, `ERR_ZAP_MESSAGE_${fault.toUpperCase()}`);
}

test("a million random and mutated messages: nothing throws, nothing outside is read", () => {
  expect(SCALAR_KINDS).toHaveLength(10);
  makeSources();
  expect(sources.length).toBeGreaterThan(100);
  const faults = new Array<number>(HEADER_FAULTS.length).fill(0);
  arena.fill(0xa5);
  for (input = 0; input < INPUTS; input++) {
    given = 0;
    rootFields = [];
    given = (input & 1) === 0 ? randomInput() : mutatedInput();
    try {
      const fault = headerFault(arena, START, given);
      faults[fault]!++;
      if (fault === 0) checkMessage();
      else if (faults[fault]! % 16 === 0) checkRefusal(HEADER_FAULTS[fault]!);
    } catch (error) {
      const bytes = arena.subarray(START, START + given).toHex();
      throw new Error(`ZAP_TEST_SEED=${seed}, input ${input}: ${bytes}`, { cause: error });
    }
    arena.fill(0xa5, START, START + BODY_MAX + 64);
  }
  // Most inputs got past the header, every fault was met, and much was there to be read.
  expect(faults[0]).toBeGreaterThan(INPUTS * 0.75);
  for (const count of faults) expect(count).toBeGreaterThan(0);
  for (const count of Object.values(found)) expect(count).toBeGreaterThan(INPUTS / 50);
}, 60_000);
