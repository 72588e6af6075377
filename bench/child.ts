/**
 * One process of a measurement: `bun bench/child.ts PEER ROLE MODE SIZE WARM_MILLIS RUN_MILLIS LIMIT_SECONDS ADDRESS`.
 * Prints JSON lines: the receiver `{"address"}` first; whoever measures `{"result"}`. An error goes to stderr, exit 1. It then
 * stays until it is killed, so that nothing in flight is lost.
 */
import { checked, floodSchedule, pingPongSchedule, tally } from "./clock.ts";
import type { Peer } from "./peer.ts";

function say(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function fail(error: unknown): never {
  console.error(error instanceof Error ? (error.stack ?? error.message) : String(error));
  process.exit(1);
}

process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);

const [name, role, mode, ...rest] = process.argv.slice(2);
const [size = 0, warmMillis = 0, runMillis = 0, limitSeconds = 0] = rest.slice(0, 4).map(Number);
const address = rest[4] ?? "";

// Nothing is left behind, also where the runner was killed: its end of our stdin closes.
setTimeout(() => fail(`${name} ${role}: not finished within ${limitSeconds} s`), limitSeconds * 1_000);
process.stdin.on("end", () => process.exit(1)).resume();

const { peer } = (await import(`./peers/${name}.ts`)) as { peer: Peer };
if (role === "receive") {
  const take = mode === "throughput" ? tally(size, (result) => say({ result }), fail) : checked(size, fail);
  say({ address: await peer.listen(take, mode === "roundtrip") });
} else {
  const link = await peer.connect(address);
  if (mode === "throughput") {
    await link.flood(floodSchedule(size, warmMillis, runMillis));
  } else {
    const { next, back, result } = pingPongSchedule(size, warmMillis, runMillis, fail);
    await link.pingPong(next, back);
    say({ result: result() });
  }
}
