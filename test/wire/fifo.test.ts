import { expect, test } from "bun:test";
import fc from "fast-check";
import { Fifo } from "../../lib/wire/common/fifo.ts";

type Step = (fifo: Fifo<number>, model: number[]) => void;

let next = 0;
const push: Step = (fifo, model) => {
  fifo.push(next);
  model.push(next++);
};
const shift: Step = (fifo, model) => expect(fifo.shift()).toBe(model.shift());
const steps = {
  push: fc.constant(push),
  burst: fc.integer({ min: 2, max: 40 }).map((count): Step => {
    return (fifo, model) => {
      for (let i = 0; i < count; i++) push(fifo, model);
    };
  }),
  shift: fc.constant(shift),
  shifts: fc.integer({ min: 2, max: 40 }).map((count): Step => {
    return (fifo, model) => {
      for (let i = 0; i < count; i++) shift(fifo, model);
    };
  }),
  drain: fc.constant<Step>((fifo, model) => expect(fifo.drain()).toEqual(model.splice(0))),
};

test("a queue behaves like an array", () => {
  const run = fc.array(
    fc.oneof(
      { weight: 6, arbitrary: steps.push },
      { weight: 4, arbitrary: steps.burst },
      { weight: 6, arbitrary: steps.shift },
      { weight: 3, arbitrary: steps.shifts },
      { weight: 1, arbitrary: steps.drain },
    ),
    { maxLength: 100 },
  );
  fc.assert(
    fc.property(run, (all) => {
      const fifo = new Fifo<number>();
      const model: number[] = [];
      for (const step of all) {
        step(fifo, model);
        expect(fifo.length).toBe(model.length);
        expect(fifo.peek()).toBe(model[0]);
        if (model.length > 0) expect(fifo.at(model.length - 1)).toBe(model.at(-1));
        expect(fifo.at(model.length)).toBeUndefined();
      }
    }),
  );
});

test("a burst of 100,000 keeps its order, and an emptied queue keeps nothing alive", async () => {
  const fifo = new Fifo<{ n: number }>();
  const refs: WeakRef<{ n: number }>[] = [];
  for (let n = 0; n < 100_000; n++) {
    const item = { n };
    if (n % 10_000 === 0) refs.push(new WeakRef(item));
    fifo.push(item);
  }
  let inOrder = true;
  for (let n = 0; n < 100_000; n++) inOrder &&= fifo.shift()?.n === n;
  expect(inOrder).toBe(true);
  expect(fifo.shift()).toBeUndefined();
  await Bun.sleep(1);
  Bun.gc(true);
  await Bun.sleep(1);
  Bun.gc(true);
  expect(refs.filter((ref) => ref.deref() !== undefined).length).toBeLessThan(2);
});
