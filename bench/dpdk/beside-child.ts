/**
 * `bun bench/dpdk/beside-child.ts LIBRARY SECONDS IDLE`: something else, timers and garbage, in a process in which a thread polls a port
 * where nothing happens; without a thread where IDLE is `none`. Prints one line of JSON.
 */
import { type Idle, Rig } from "./rig.ts";

const [library = "", seconds = "0.5", idle = "none"] = process.argv.slice(2);
const span = Number(seconds) * 1_000;
const TICK_MILLIS = 2;

/** Objects that live for a moment, and text that is parsed. */
function work(round: number): number {
  const rows = Array.from({ length: 200 }, (_, index) => ({ index, name: `row ${round + index}` }));
  return (JSON.parse(JSON.stringify(rows)) as unknown[]).length;
}

const rig = new Rig(library, "idle", 64);
if (idle === "none") rig.attach();
else rig.start(idle as Idle);
for (let i = 0; i < 300; i++) work(i);

const late: number[] = [];
let rounds = 0;
const begin = performance.now();
const cpuBefore = process.cpuUsage();
let due = begin + TICK_MILLIS;
const tick = (): void => {
  const now = performance.now();
  late.push(now - due);
  due = now + TICK_MILLIS;
  setTimeout(tick, TICK_MILLIS);
};
setTimeout(tick, TICK_MILLIS);
while (performance.now() - begin < span) {
  rounds += work(rounds) > 0 ? 1 : 0;
  await new Promise<void>((resolve) => setImmediate(resolve));
}
const busy = performance.now() - begin;
const cpu = process.cpuUsage(cpuBefore);
const sorted = late.toSorted((a, b) => a - b);
// And doing nothing at all.
const quietBefore = process.cpuUsage();
const quietBegin = performance.now();
await Bun.sleep(Math.max(200, span / 2));
const quiet = process.cpuUsage(quietBefore);
const quietMillis = performance.now() - quietBegin;
const line = {
  idle,
  roundsPerSecond: (rounds / busy) * 1_000,
  lateMicros: (sorted[Math.floor(sorted.length * 0.99)] ?? 0) * 1_000,
  busyCores: (cpu.user + cpu.system) / 1_000 / busy,
  quietCores: (quiet.user + quiet.system) / 1_000 / quietMillis,
};
process.stdout.write(`${JSON.stringify(line)}\n`);
rig.close();
process.exit(0);
