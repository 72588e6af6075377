/**
 * One case in one process: `bun bench/verify/measure.ts CASE ITEMS ROUNDS MILLIS`. The contenders take turns, round after round; prints
 * one line of JSON, a `Measured`. How many workers there are is in `ZAP_VERIFY_WORKERS`, and on how many cores they run is the caller's business.
 */
import { readdirSync, readFileSync } from "node:fs";
import { batchVerify, pack, type Item, type PackedBatch } from "../../lib/index.ts";
import { CASES } from "./cases.ts";
import { plainCall } from "./plain.ts";

/** Verifications per second, by the clock and by processor time of all threads. Others on the machine spoil the first much more. */
export interface Rate {
  readonly clock: number;
  readonly processor: number;
  /** How many cores its threads would have kept busy: the time that they ran, and that they waited for a core. NaN where the system does not tell. */
  readonly wanted: number;
}

/** One figure for each round. */
export interface Measured {
  readonly plain: Rate[];
  /** A packed batch in shared memory; a list of items, which is packed first. */
  readonly packed: Rate[];
  readonly list: Rate[];
  /** Microseconds for a batch of one, and for the plain call. */
  readonly oneMicros: number[];
  readonly plainMicros: number[];
  /** The longest time that the main thread worked, or that passed, before the event loop came round, milliseconds, while `list` ran. */
  readonly workedMillis: number[];
  readonly passedMillis: number[];
}

const [name, itemCount, rounds, millis] = process.argv.slice(2) as [string, string, string, string];
const { scheme, sign } = CASES[name]!;
const list = sign(Number(itemCount));
const packed = pack(list, { shared: true });
const single = list.slice(0, 1);
const plain = await plainCall(scheme);

function seconds(start: number): number {
  return (Bun.nanoseconds() - start) / 1e9;
}

/** What the main thread has worked so far, milliseconds; NaN where the system does not tell. */
function worked(): number {
  if (process.platform !== "linux") return NaN;
  return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ")[0]) / 1e6;
}

/** What all threads have run and have waited for a core so far, seconds. */
function runnable(): number {
  if (process.platform !== "linux") return NaN;
  let nanos = 0;
  for (const task of readdirSync("/proc/self/task")) {
    const [ran, waited] = readFileSync(`/proc/self/task/${task}/schedstat`, "utf8").split(" ").map(Number);
    nanos += ran! + waited!;
  }
  return nanos / 1e9;
}

/** Calls `some`, which returns how many it has verified, again and again. */
async function rateOf(some: () => number | Promise<number>): Promise<Rate> {
  const before = runnable();
  const cpu = process.cpuUsage();
  const start = Bun.nanoseconds();
  let done = 0;
  do done += await some();
  while (seconds(start) * 1_000 < Number(millis));
  const { user, system } = process.cpuUsage(cpu);
  const taken = seconds(start);
  const wanted = (runnable() - before) / taken;
  return { clock: done / taken, processor: done / ((user + system) / 1e6), wanted };
}

let next = 0;

function verifyPlain(): number {
  const from = next;
  const to = Math.min(list.length, from + 16);
  next = to === list.length ? 0 : to;
  for (let at = from; at < to; at++)
    if (!plain(list[at]!)) throw new Error(`${scheme}: the plain call refuses item ${at}`);
  return to - from;
}

async function verifyBatch(batch: PackedBatch | readonly Item[]): Promise<number> {
  const answers = await batchVerify(scheme, batch);
  if (!answers.every(Boolean)) throw new Error(`${scheme}: a valid item was refused`);
  return answers.length;
}

/** Microseconds for one, by the median. */
async function microsOfOne(verify: () => unknown): Promise<number> {
  const taken: number[] = [];
  const start = Bun.nanoseconds();
  do {
    const before = Bun.nanoseconds();
    await verify();
    taken.push((Bun.nanoseconds() - before) / 1_000);
    // A turn of the event loop, as between batches that arrive.
    await new Promise((resume) => setImmediate(resume));
  } while (taken.length < 20 || seconds(start) * 4_000 < Number(millis));
  return taken.toSorted((a, b) => a - b)[taken.length >> 1]!;
}

async function watched(run: () => Promise<unknown>, measured: Measured): Promise<void> {
  let lastWorked = worked();
  let lastPassed = performance.now();
  let mostWorked = 0;
  let mostPassed = 0;
  const look = setInterval(() => {
    const nowWorked = worked();
    const nowPassed = performance.now();
    mostWorked = Math.max(mostWorked, nowWorked - lastWorked);
    mostPassed = Math.max(mostPassed, nowPassed - lastPassed);
    lastWorked = nowWorked;
    lastPassed = nowPassed;
  }, 1);
  try {
    await run();
  } finally {
    clearInterval(look);
    measured.workedMillis.push(mostWorked);
    measured.passedMillis.push(mostPassed);
  }
}

function empty(): Measured {
  return {
    plain: [],
    packed: [],
    list: [],
    oneMicros: [],
    plainMicros: [],
    workedMillis: [],
    passedMillis: [],
  };
}

let measured = empty();
// The first round starts workers, loads libraries and warms up, and does not count.
for (let round = 0; round <= Number(rounds); round++) {
  if (round === 1) measured = empty();
  measured.plain.push(await rateOf(verifyPlain));
  measured.packed.push(await rateOf(() => verifyBatch(packed)));
  measured.list.push(await rateOf(() => verifyBatch(list)));
  await watched(() => verifyBatch(list), measured);
  measured.oneMicros.push(await microsOfOne(() => batchVerify(scheme, single)));
  measured.plainMicros.push(await microsOfOne(() => plain(single[0]!)));
}
console.log(JSON.stringify(measured));
