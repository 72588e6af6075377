/**
 * `bun bench/dpdk/ring-child.ts LIBRARY SECONDS WHERE`: packets from the burst to the ring, consumed by JavaScript in this process. WHERE
 * is `turn`: polled and consumed by one thread in turn, or `beside`: a thread polls, the event loop consumes. Prints lines of JSON
 * like `test/native/dpdk_bench.c`.
 */
import { Rig } from "./rig.ts";

const [library = "", seconds = "0.5", where = "turn"] = process.argv.slice(2);
const span = Number(seconds) * 1_000;
/** Bursts for each call into native code. */
const BURSTS = 8;
const WARM_MILLIS = 100;

function print(device: string, bytes: number, what: string, cores: string, rig: Rig, millis: number): void {
  const { packets, full } = rig.counts();
  if (rig.wrong > 0) throw new Error(`${rig.wrong} packets without the magic`);
  const nanos = (millis * 1e6) / packets;
  const line = { what, device, bytes, cores, packets, good: rig.taken, full, nanos, mpps: 1_000 / nanos };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Nothing but the calls and the ring: what one core can do. */
function inTurn(rig: Rig, millis: number): number {
  rig.attach();
  const [begin, cpu] = [performance.now(), rig.cpu()];
  while (performance.now() - begin < millis) {
    for (let i = 0; i < 16; i++) {
      rig.poll(BURSTS);
      rig.consume();
    }
  }
  return rig.cpu() - cpu;
}

/** As the transport does it: all that is there, then a turn of the loop; where nothing is there, the thread wakes us. */
async function inLoop(rig: Rig, millis: number): Promise<number> {
  const over = Promise.withResolvers<void>();
  let stopped = false;
  const turn = (): void => {
    if (stopped) return over.resolve();
    if (rig.consume() > 0 || !rig.arm()) setImmediate(turn);
  };
  await rig.wake(turn);
  const begin = performance.now();
  rig.start("spin");
  turn();
  await Bun.sleep(millis);
  const took = performance.now() - begin;
  stopped = true;
  // Where the last turn has armed the ring, nobody may ever come.
  await Promise.race([over.promise, Bun.sleep(50)]);
  return took;
}

for (const bytes of [64, 1_500]) {
  for (const device of ["net_null", "net_ring"] as const) {
    const sent = device === "net_ring" ? "sent, " : "";
    for (const counts of [false, true]) {
      const millis = counts ? span : WARM_MILLIS;
      const rig = new Rig(library, device, bytes);
      const took = where === "turn" ? inTurn(rig, millis) : await inLoop(rig, millis);
      const what = `${sent}burst to ring, ${where === "turn" ? "Bun in turn" : "Bun's event loop"}`;
      if (counts) print(device, bytes, what, where === "turn" ? "1" : "2", rig, took);
      rig.close();
    }
  }
}
process.exit(0);
