/**
 * `bun bench/receive/run.ts [--sizes 256,4096] [--rounds 3] [--quick] [--json]`: receiving into slabs against the default transport, one
 * after the other in every round, with a sender in C so that the receiver is what is measured.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { encodeHello, HELLO_PLAIN } from "../../lib/wire/sockets/hello.ts";
import { buildC } from "../peers/c-epoll.ts";
import { placements } from "../processors.ts";

const GOALS: Readonly<Record<number, number>> = { 256: 1, 4_096: 1.5, 65_536: 1.5, 1_048_576: 1.5 };
const MEMORIES = ["default", "slabs"] as const;
type Memory = (typeof MEMORIES)[number];

interface Result {
  readonly messagesPerSecond: number;
  readonly megabytesPerSecond: number;
  readonly cpuNanosPerMessage: number;
  readonly copiedPerByte: number;
  readonly wrong: number;
}

const { values } = parseArgs({
  options: {
    sizes: { type: "string", default: Object.keys(GOALS).join() },
    rounds: { type: "string" },
    quick: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
});
const sizes = values.sizes.split(",").map(Number);
const rounds = Number(values.rounds ?? (values.quick ? 1 : 3));
const [warmMillis, runMillis] = values.quick ? [100, 200] : [500, 1_500];
if (!sizes.every((size) => size >= 16) || !(rounds >= 1))
  throw new Error("--sizes takes message sizes from 16 bytes on, --rounds a number");

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

const folder = mkdtempSync(join(tmpdir(), "zap-bench-"));
const rows: Record<string, unknown>[] = [];
try {
  const flood = await buildC("flood", folder);
  if (typeof flood !== "string") throw new Error(flood.skip);
  for (const size of sizes) {
    const results: Record<Memory, Result[]> = { default: [], slabs: [] };
    for (let round = 0; round < rounds; round++)
      for (const memory of MEMORIES) results[memory].push(await measure(flood, memory, size));
    const middle = (memory: Memory, of: keyof Result): number =>
      median(results[memory].map((one) => one[of]));
    const ratio = middle("slabs", "megabytesPerSecond") / middle("default", "megabytesPerSecond");
    for (const memory of MEMORIES) {
      rows.push({
        "size, B": size,
        receiver: memory,
        "MB/s": Math.round(middle(memory, "megabytesPerSecond")),
        "messages/s": Math.round(middle(memory, "messagesPerSecond")),
        "CPU ns/message": Math.round(middle(memory, "cpuNanosPerMessage")),
        "copies/byte": middle(memory, "copiedPerByte").toFixed(3),
        ratio: memory === "slabs" ? ratio.toFixed(2) : "1",
        goal: memory === "slabs" ? (GOALS[size]?.toFixed(1) ?? "") : "",
      });
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
console.log(values.json ? JSON.stringify(rows) : Bun.inspect.table(rows, { colors: process.stdout.isTTY }));
