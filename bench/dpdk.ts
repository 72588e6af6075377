/**
 * What a packet costs from the burst to the hand-off ring, without Bun in the loop: a C program over DPDK's software devices, compiled here
 * with the system's compiler. Medians over rounds.
 */
import { parseArgs } from "node:util";
import { COMPILER, finish, Workshop } from "../test/native/toolchain.ts";
import { dpdkPrograms, LIBDPDK } from "../test/native/dpdk-toolchain.ts";
import { circumstances, headLine } from "./circumstances.ts";
import { number, table } from "./report.ts";
import { optionsOrEnd, parseRounds } from "./values.ts";

const HELP = `bun bench/dpdk.ts [options]

Nanoseconds for a packet from DPDK's burst to the hand-off ring, for frames of 64 and 1500 bytes. Every thread spins: the row with
two cores means something only while nobody else needs either of them; packets that found the ring full say that somebody did.

  --rounds N    rounds to take the medians of (default 5)
  --seconds N   how long each row of a round takes, 0.05 to 60 (default 0.5)
  --hugepages   on hugepages, of which 128 MiB must be free; else on ordinary pages
  --json        results as JSON on standard output
  --help        this text
`;

/** A line that the program prints. */
interface Line {
  readonly what: string;
  readonly device: string;
  readonly bytes: number;
  readonly cores: string;
  /** Packets for the ring, and those of them that arrived there and were good. */
  readonly packets: number;
  readonly good: number;
  /** Dropped, as the consumer was behind. */
  readonly full: number;
  readonly nanos: number;
  readonly mpps: number;
}

function parse(args: string[]) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "0.5" },
      hugepages: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const seconds = /^\d+(\.\d+)?$/.test(values.seconds) ? Number(values.seconds) : NaN;
  if (!(seconds >= 0.05 && seconds <= 60)) {
    throw new Error(`--seconds: 0.05 to 60 is possible, got ${JSON.stringify(values.seconds)}`);
  }
  return { ...values, rounds: parseRounds(values.rounds), seconds };
}

function fail(text: string): never {
  console.error(`bench/dpdk: ${text}`);
  process.exit(1);
}

function median(lines: readonly Line[]): Line {
  return lines.toSorted((a, b) => a.nanos - b.nanos)[lines.length >> 1]!;
}

const options = optionsOrEnd("bench/dpdk", HELP, parse);
if (COMPILER === null) fail("there is no C compiler");
if (LIBDPDK === null) fail("pkg-config knows no libdpdk here: install libdpdk-dev and pkg-config");

using shop = new Workshop();
const [program] = await dpdkPrograms(shop, ["bench"], ["-O3"]);
const rounds: Line[][] = [];
for (let round = 0; round < options.rounds; round++) {
  const env: Record<string, string> = options.hugepages ? { ZAP_TEST_HUGEPAGES: "1" } : {};
  const { code, output } = await finish([program!, String(options.seconds)], env);
  if (code !== 0) fail(output.trim());
  rounds.push(
    output
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Line),
  );
}
const results = rounds[0]!.map((_, at) => median(rounds.map((lines) => lines[at]!)));
const head = {
  ...circumstances(),
  dpdk: LIBDPDK.version,
  pages: options.hugepages ? "huge" : "ordinary",
  backOff: "spin",
};
if (options.json) console.log(JSON.stringify({ ...head, results }, null, 2));
else {
  console.log(headLine(head));
  const rows = results.map((line) => [
    `${line.bytes} B`,
    line.device,
    line.what,
    line.cores,
    number(line.nanos, 1),
    number(line.mpps, 1),
    `${number((100 * line.full) / (line.full + line.packets || 1), 1)} %`,
  ]);
  console.log(table(["frame", "device", "what", "cores", "ns/packet", "Mpps", "ring full"], rows, 3, 1));
}
