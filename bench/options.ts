/** What can be asked of the benchmark on the command line. */
import { parseArgs } from "node:util";
import { CONTENDERS, type Contender } from "./contenders.ts";
import { SIZE_MIN } from "./message.ts";
import { parseList, parseRounds, parseSizes } from "./values.ts";

export const HELP = `bun run bench [options]

Messages between two processes over loopback: one-way throughput and round trips.

  --only NAME[,NAME]   these contenders alone: ${CONTENDERS.map(({ name }) => name).join(", ")}
  --sizes SIZE[,SIZE]  these message sizes alone, for example 256,64KiB,1MiB
                       (round trips are made at 64 B and 64 KiB, where they are among them)
  --rounds N           rounds to take the medians of (default 3, with --quick 1)
  --quick              short runs: to see that everything works, not to compare
  --json               results as JSON on standard output
  --help               this text
`;

export interface Options {
  readonly contenders: readonly Contender[];
  readonly sizes: readonly number[];
  readonly roundTripSizes: readonly number[];
  readonly rounds: number;
  readonly warmMillis: number;
  readonly runMillis: number;
  readonly json: boolean;
  readonly help: boolean;
}

const SIZES = [64, 256, 4_096, 65_536, 1_048_576];
const ROUND_TRIP_SIZES = [64, 65_536];

/** Throws an Error that names what cannot be understood. */
export function parseOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      only: { type: "string" },
      sizes: { type: "string" },
      rounds: { type: "string" },
      quick: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const sizes = values.sizes === undefined ? SIZES : parseSizes(values.sizes, SIZE_MIN);
  return {
    contenders: values.only === undefined ? CONTENDERS : chosen(parseList(values.only)),
    sizes,
    roundTripSizes: ROUND_TRIP_SIZES.filter((size) => sizes.includes(size)),
    rounds: parseRounds(values.rounds ?? (values.quick ? "1" : "3")),
    warmMillis: values.quick ? 50 : 750,
    runMillis: values.quick ? 150 : 750,
    json: values.json,
    help: values.help,
  };
}

function chosen(names: readonly string[]): Contender[] {
  const unknown = names.find((name) => !CONTENDERS.some((contender) => contender.name === name));
  if (unknown !== undefined) {
    throw new Error(
      `--only: there is no ${JSON.stringify(unknown)}; there are ${CONTENDERS.map(({ name }) => name).join(", ")}`,
    );
  }
  return CONTENDERS.filter(({ name }) => names.includes(name));
}
