/**
 * Does one kind of thing a million times, between two marks on stderr. Run by allocation.test.ts with the collector's log on:
 * garbage collections between the marks tell how much was allocated.
 */
import { MessageBuilder, headerFault, parse } from "../../lib/message/index.ts";

const TIMES = 1_000_000;

const builder = new MessageBuilder();
const numbers = builder.startList(4).addUint32(0xffff_ffff).addUint32(7);
builder.startObject(64).setUint32(0, 0xffff_fff0).setFloat64(8, 0.1).setList(16, numbers).finishAsRoot();
numbers.finish();
const built = builder.finish();
// As from a wire: in the middle of a larger buffer.
const chunk = new Uint8Array(4096);
chunk.set(built, 100);
const bytes = chunk.subarray(100, 100 + built.length);
const root = parse(bytes).root();
const list = root.list(16, 4);

/** What was read, so that nothing is left out as unused. */
let sum = 0;
let kept: unknown = null;

const RUNS: Record<string, (i: number) => void> = {
  // Four objects each, and three bigints each: to see that the log would tell.
  objects: (i) => (kept = [{ i }, { i }, { i }]),
  bigints: () => (kept = root.uint64(0) + root.uint64(0)),
  header: () => (sum += headerFault(chunk, 100, built.length)),
  parse: () => (kept = parse(bytes)),
  scalars: (i) => {
    const field = i & 31;
    sum += root.uint8(field) + root.uint16(field) + root.uint32(field);
    sum += root.int8(field) + root.int16(field) + root.int32(field);
    sum += root.float32(0) + root.float64(8) + (root.bool(field) ? 1 : 0);
    sum += root.uint32(1000) + root.float64(-1);
  },
  elements: (i) => {
    sum += list.uint32(i & 3) + list.int32(0) + list.uint16(1) + list.int8(1) + list.float32(1);
  },
  nulls: () => {
    kept = root.object(60).object(0).list(0, 8).pointer(0);
    kept = root.bytes(60);
    kept = root.text(60);
    kept = root.address(60);
  },
};

const run = RUNS[process.argv[2]!]!;
for (let i = 0; i < 100_000; i++) run(i);
Bun.gc(true);
console.error("<<<");
for (let i = 0; i < TIMES; i++) run(i);
console.error(">>>");
console.log(typeof kept, sum);
