import { expect, test } from "bun:test";
import { diceOf } from "../support/properties.ts";
import { KIB, MIB } from "./kind-double.ts";
import { PoolModel, type Setting } from "./pool-model.ts";

const STEPS = 100_000;
const STEPS_PER_POOL = 1_000;

const PLAIN = { memoryBytes: Infinity, debug: false, thieves: false };
const SETTINGS: readonly Setting[] = [
  { ...PLAIN, poolBytes: 100 },
  { ...PLAIN, poolBytes: 1_000 },
  { ...PLAIN, poolBytes: 5_000, debug: true },
  { ...PLAIN, poolBytes: 70_000 },
  { ...PLAIN, poolBytes: MIB },
  { ...PLAIN, poolBytes: MIB, debug: true },
  { ...PLAIN, poolBytes: 4 * MIB + 77 },
  { ...PLAIN, poolBytes: 4 * MIB + 77, debug: true },
  { ...PLAIN, poolBytes: 20 * MIB },
  { ...PLAIN, poolBytes: 0, memoryBytes: 6 * MIB },
  { ...PLAIN, poolBytes: 8 * MIB, memoryBytes: 3 * MIB + 5_000 },
  { ...PLAIN, poolBytes: 64 * KIB, memoryBytes: 40_000, debug: true },
  { ...PLAIN, poolBytes: 4 * MIB, thieves: true },
  { ...PLAIN, poolBytes: 4 * MIB, debug: true, thieves: true },
  { ...PLAIN, poolBytes: 20 * KIB, thieves: true },
  { ...PLAIN, poolBytes: 0, memoryBytes: 6 * MIB, thieves: true },
];

test("100,000 random steps: no byte of one owner ever shows in another's view, and all are served in order", async () => {
  const done: Record<string, number> = {};
  for (let pools = 0; pools < STEPS / STEPS_PER_POOL; pools++) {
    const model = new PoolModel(SETTINGS[pools % SETTINGS.length]!, diceOf(pools + 1));
    for (let step = 0; step < STEPS_PER_POOL; step++) await model.step();
    // Not in step with the settings, so that each ends in each way.
    const end = Math.floor(pools / SETTINGS.length) % 3;
    if (end === 0) await model.drain();
    else await model.close(end === 1);
    for (const [name, times] of Object.entries(model.done)) done[name] = (done[name] ?? 0) + times;
  }
  // The steps must have led somewhere.
  for (const name of ["alloc", "alloc behind others", "tryAlloc", "tryAlloc would wait", "release", "abort"])
    expect(done[name]).toBeGreaterThan(1_000);
  for (const name of ["alloc refused", "steal", "release again"]) expect(done[name]).toBeGreaterThan(10);
}, 60_000);
