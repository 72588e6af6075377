/**
 * Receiving into slabs against the default transport, one after the other in every round, with a sender in C so that the receiver is
 * what is measured.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { encodeHello, HELLO_PLAIN } from "../../lib/wire/sockets/hello.ts";
import { buildC } from "../peers/c-epoll.ts";
import { circumstances, headLine } from "../circumstances.ts";
import { placements } from "../processors.ts";
import { bytesText, number, table } from "../report.ts";
import { optionsOrEnd, parseRounds, parseSizes } from "../values.ts";

const GOALS: Readonly<Record<number, number>> = { 256: 1, 4_096: 1.5, 65_536: 1.5, 1_048_576: 1.5 };
/** A ZAP message is a header at the least. */
const SIZE_MIN = 16;
const MEMORIES = ["default", "slabs"] as const;
type Memory = (typeof MEMORIES)[number];

interface Result {
  readonly messagesPerSecond: number;
  readonly megabytesPerSecond: number;
  readonly cpuNanosPerMessage: number;
  readonly copiedPerByte: number;
  readonly wrong: number;
}

const HELP = `bun run bench:receive [options]

Receiving into slabs against the default transport, one connection over loopback.

  --sizes SIZE[,SIZE]  message sizes, for example 256,64KiB,1MiB
  --rounds N           rounds to take the medians of (default 3, with --quick 1)
  --quick              short runs: to see that everything works, not to compare
  --json               results as JSON on standard output
  --help               this text
`;

function parse(args: string[]) {
  const { values } = parseArgs({
    args,
    options: {
      sizes: { type: "string", default: Object.keys(GOALS).join() },
      rounds: { type: "string" },
      quick: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  return {
    sizes: parseSizes(values.sizes, SIZE_MIN),
    rounds: parseRounds(values.rounds ?? (values.quick ? "1" : "3")),
    warmMillis: values.quick ? 100 : 500,
    runMillis: values.quick ? 200 : 1_500,
    json: values.json,
    help: values.help,
  };
}

const { sizes, rounds, warmMillis, runMillis, json } = optionsOrEnd("bench:receive", HELP, parse);

/** Each side has a processor of its own, where the system lets us choose. */
const apart = placements().find(({ name }) => name === "two cores")?.processors ?? null;
const on = (processor: number | undefined): string[] =>
  processor === undefined ? [] : ["taskset", "-c", String(processor)];

async function* lines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of stream) {
    const parts = (rest + new TextDecoder().decode(chunk)).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
}

/** Connects and shakes hands, then leaves the socket to the sender. */
async function greeted(address: string): Promise<{ fd: number; end(): void }> {
  const colon = address.lastIndexOf(":");
  const answered = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    hostname: address.slice(0, colon),
    port: Number(address.slice(colon + 1)),
    socket: { data: () => answered.resolve() },
  });
  socket.write(encodeHello("sender", HELLO_PLAIN));
  await answered.promise;
  return { fd: (socket as unknown as { fd: number }).fd, end: () => socket.terminate() };
}

async function measure(flood: string, memory: Memory, size: number): Promise<Result> {
  const script = join(import.meta.dir, "receiver.ts");
  const times = [size, warmMillis, runMillis].map(String);
  const receiver = Bun.spawn([...on(apart?.receive), process.execPath, script, memory, ...times], {
    stdout: "pipe",
    stderr: "inherit",
    timeout: 60_000,
  });
  const said = lines(receiver.stdout);
  const { address } = JSON.parse((await said.next()).value ?? "{}") as { address?: string };
  if (address === undefined) throw new Error(`the receiver (${memory}) did not start`);
  const { fd, end } = await greeted(address);
  const seconds = String((warmMillis + runMillis) / 1_000 + 5);
  const sender = Bun.spawn([...on(apart?.send), flood, String(size), seconds], {
    stdio: [fd, "ignore", "inherit"],
  });
  const line = (await said.next()).value;
  sender.kill();
  end();
  await Promise.all([sender.exited, receiver.exited]);
  if (line === undefined) throw new Error(`the receiver (${memory}) ended without a result`);
  const { result } = JSON.parse(line) as { result: Result };
  if (result.wrong > 0) throw new Error(`${result.wrong} messages were wrong at ${memory}, ${size} B`);
  return result;
}

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? NaN;
}

interface Row extends Omit<Result, "wrong"> {
  readonly size: number;
  readonly receiver: Memory;
  /** Of MB/s, to `default` in the same run. */
  readonly ratio: number;
  /** The ratio to reach; null where there is none. */
  readonly goal: number | null;
}

function summary(size: number, results: Readonly<Record<Memory, readonly Result[]>>): Row[] {
  const middle = (memory: Memory, of: keyof Result): number => median(results[memory].map((one) => one[of]));
  return MEMORIES.map((memory) => ({
    size,
    receiver: memory,
    megabytesPerSecond: middle(memory, "megabytesPerSecond"),
    messagesPerSecond: middle(memory, "messagesPerSecond"),
    cpuNanosPerMessage: middle(memory, "cpuNanosPerMessage"),
    copiedPerByte: middle(memory, "copiedPerByte"),
    ratio: middle(memory, "megabytesPerSecond") / middle("default", "megabytesPerSecond"),
    goal: memory === "slabs" ? (GOALS[size] ?? null) : null,
  }));
}

function text(rows: readonly Row[]): string {
  const head = ["size", "receiver", "MB/s", "messages/s", "CPU ns/message", "copies/byte", "ratio", "goal"];
  const cells = rows.map((row) => [
    bytesText(row.size),
    row.receiver,
    number(row.megabytesPerSecond, 0),
    number(row.messagesPerSecond, 0),
    number(row.cpuNanosPerMessage, 0),
    number(row.copiedPerByte, 3),
    number(row.ratio, 2),
    row.goal === null ? "" : number(row.goal, 1),
  ]);
  return table(head, cells, 2, 1);
}

const head = { ...circumstances(), rounds, runMillis };
const folder = mkdtempSync(join(tmpdir(), "zap-bench-"));
const rows: Row[] = [];
try {
  const flood = await buildC("flood", folder);
  if (typeof flood !== "string") throw new Error(flood.skip);
  for (const size of sizes) {
    const results: Record<Memory, Result[]> = { default: [], slabs: [] };
    for (let round = 0; round < rounds; round++)
      for (const memory of MEMORIES) results[memory].push(await measure(flood, memory, size));
    rows.push(...summary(size, results));
  }
} catch (error) {
  console.error(`bench:receive: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
if (process.exitCode !== 1)
  console.log(
    json ? JSON.stringify({ ...head, results: rows }, null, 2) : `${headLine(head)}\n\n${text(rows)}`,
  );
