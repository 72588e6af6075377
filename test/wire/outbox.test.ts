import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Outbox, OutboxPool } from "../../lib/wire/sockets/outbox.ts";
import { messageOf } from "../support/messages.ts";
import { runs } from "../support/properties.ts";
import { OutboxUnderTest } from "./outbox-model.ts";

const KIB = 1024;

const smallBytes = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 20, max: 400 }) },
  { weight: 2, arbitrary: fc.constantFrom(4_096, 16_379, 16_380, 16_381, 65_536, 100_000, 128 * KIB) },
);
const largeBytes = fc.constantFrom(128 * KIB + 1, 150_000, 262_140, 400_000);
const budget = fc.oneof(
  { weight: 3, arbitrary: fc.nat(40) },
  { weight: 3, arbitrary: fc.nat(20_000) },
  { weight: 2, arbitrary: fc.nat(500_000) },
  { weight: 1, arbitrary: fc.constant(Infinity) },
);

type Step = (box: OutboxUnderTest) => void;
const step = fc.oneof(
  {
    weight: 10,
    arbitrary: smallBytes.map(
      (bytes): Step =>
        (box) =>
          box.append(bytes),
    ),
  },
  {
    weight: 3,
    arbitrary: fc.tuple(smallBytes, fc.integer({ min: 2, max: 30 })).map(([bytes, count]): Step => {
      return (box) => {
        for (let i = 0; i < count; i++) box.append(Math.min(bytes, 2_000));
      };
    }),
  },
  {
    weight: 4,
    arbitrary: largeBytes.map(
      (bytes): Step =>
        (box) =>
          box.append(bytes),
    ),
  },
  {
    weight: 3,
    arbitrary: fc.nat(15).map(
      (bytes): Step =>
        (box) =>
          box.control(bytes),
    ),
  },
  {
    weight: 12,
    arbitrary: budget.map(
      (bytes): Step =>
        (box) =>
          box.write(bytes),
    ),
  },
  {
    weight: 3,
    arbitrary: fc.nat(5).map(
      (nth): Step =>
        (box) =>
          box.abort(nth),
    ),
  },
  { weight: 3, arbitrary: fc.constant<Step>((box) => box.lose()) },
  { weight: 3, arbitrary: fc.constant<Step>((box) => box.retire()) },
  { weight: 1, arbitrary: fc.constant<Step>((box) => box.dropHead()) },
  { weight: 1, arbitrary: fc.constant<Step>((box) => box.writeToClosed()) },
);

describe("an outbox", () => {
  test("gives every accepted message to one connection, once and in order, whatever happens to connections", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(1), step), { maxLength: 80, size: "max" }), (steps) => {
        const pool = new OutboxPool();
        const boxes = [new OutboxUnderTest(pool), new OutboxUnderTest(pool)] as const;
        const sum = () => boxes[0].outbox.bytes + boxes[1].outbox.bytes;
        for (const [which, run] of steps) {
          const box = boxes[which === 0 ? 0 : 1];
          run(box);
          box.check();
          if (pool.queuedBytes !== sum()) throw new Error(`the pool says ${pool.queuedBytes}, not ${sum()}`);
        }
        for (const box of boxes) box.finish();
        expect(pool.queuedBytes).toBe(0);
      }),
      runs(300),
    );
    // A busy machine takes several times as long.
  }, 60_000);

  test("counts what is lost when it is emptied, and goes on", () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 60, size: "max" }),
        fc.array(step, { maxLength: 20 }),
        (before, after) => {
          const pool = new OutboxPool();
          const box = new OutboxUnderTest(pool);
          for (const run of before) run(box);
          box.clear();
          expect([box.outbox.bytes, box.outbox.messages, pool.queuedBytes]).toEqual([0, 0, 0]);
          for (const run of after) run(box);
          box.finish();
          expect(pool.queuedBytes).toBe(0);
        },
      ),
      runs(100),
    );
  });

  test("puts many small messages into one write", () => {
    const outbox = new Outbox(new OutboxPool());
    for (let i = 0; i < 1_000; i++) outbox.append(messageOf(64, i));
    let writes = 0;
    outbox.write({ write: (_bytes, _offset, length) => (writes++, length) }, () => {});
    expect(writes).toBeLessThanOrEqual(2);
    writes = 0;
    for (let i = 0; i < 1_000; i++) outbox.append(messageOf(64, i));
    outbox.write({ write: (_bytes, _offset, length) => (writes++, length) }, () => {});
    expect(writes).toBe(1);
  });

  test("copies small messages and does not copy large ones", () => {
    const outbox = new Outbox(new OutboxPool());
    const seen: Uint8Array[] = [];
    const [small, large] = [messageOf(128 * KIB), messageOf(128 * KIB + 1)];
    expect([Outbox.isDirect(small), Outbox.isDirect(large)]).toEqual([false, true]);
    outbox.append(small);
    outbox.appendDirect(large, { done: () => {}, failed: () => {} });
    outbox.write({ write: (bytes, _offset, length) => (seen.push(bytes), length) }, () => {});
    expect(seen.some((bytes) => bytes.buffer === small.buffer)).toBe(false);
    expect(seen.some((bytes) => bytes.buffer === large.buffer)).toBe(true);
  });
});
