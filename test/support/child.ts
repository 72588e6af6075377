/**
 * A node in a process of its own, for tests that kill it or weigh its memory. Started by `Child.start`; says what happens as one
 * JSON line each on standard output.
 *
 * Roles: `idle` listens and takes nothing; `source` sends `count` messages of `bytes` to the node at `to`; `sink` takes as many
 * of such, at most `bytesPerSecond`, and checks each.
 */
import {
  pick,
  type Transport,
  type TransportName,
  type TransportOptions,
} from "../../lib/transport/index.ts";
import { messageOf, sameBytes } from "./messages.ts";

export interface ChildTask {
  readonly role: "idle" | "sink" | "source";
  readonly options: Omit<TransportOptions, "onEvent">;
  /** Default: `default`. */
  readonly transport?: TransportName;
  /** Variables that it has beside ours. */
  readonly env?: Readonly<Record<string, string>>;
  readonly to?: string;
  readonly count?: number;
  readonly bytes?: number;
  readonly bytesPerSecond?: number;
}

/** What a child says. */
export interface ChildLine {
  readonly event: "open" | "done" | "failed";
  readonly addresses?: readonly string[];
  readonly error?: string;
  /** The largest resident set seen, above the one at the start, bytes. */
  readonly growth?: number;
  readonly undelivered?: number;
  readonly troubles?: readonly string[];
}

export class Child implements AsyncDisposable {
  private readonly process: Bun.Subprocess<"ignore", "pipe", "inherit">;
  private readonly lines: AsyncIterator<ChildLine>;

  private constructor(task: ChildTask) {
    this.process = Bun.spawn([process.execPath, import.meta.path, JSON.stringify(task)], {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "inherit",
      env: { ...process.env, ZAP_TRANSPORT_QUIET: "1", ...task.env },
    });
    this.lines = linesOf(this.process.stdout);
  }

  /** Resolves when the child's transport is open, with its addresses. */
  static async start(task: ChildTask): Promise<Child & { readonly address: string }> {
    const child = new Child(task);
    const line = await child.next();
    if (line.event !== "open") throw new Error(`the child failed: ${line.error}`);
    return Object.assign(child, { address: line.addresses?.[0] ?? "nowhere" });
  }

  async next(): Promise<ChildLine> {
    const { value, done } = await this.lines.next();
    if (done === true) throw new Error("the child ended without a word");
    return value;
  }

  /** The last line, which must not tell of a failure. */
  async done(): Promise<ChildLine> {
    const line = await this.next();
    if (line.event !== "done") throw new Error(`the child failed: ${line.error}`);
    return line;
  }

  async kill(): Promise<void> {
    this.process.kill("SIGKILL");
    await this.process.exited;
  }

  /** Stops it as it is, sockets open: a host that hangs. */
  freeze(): void {
    this.process.kill("SIGSTOP");
  }

  thaw(): void {
    this.process.kill("SIGCONT");
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<ChildLine> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of stream) {
    text += decoder.decode(chunk, { stream: true });
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n")) {
      yield JSON.parse(text.slice(0, end)) as ChildLine;
      text = text.slice(end + 1);
    }
  }
}

function say(line: ChildLine): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Watches this process's memory; `growth()` is its peak above what it was at the start. */
export function watchMemory(): { growth(): number; stop(): void } {
  Bun.gc(true);
  const start = process.memoryUsage.rss();
  let peak = start;
  const look = (): void => void (peak = Math.max(peak, process.memoryUsage.rss()));
  const timer = setInterval(look, 20);
  return { growth: () => (look(), peak - start), stop: () => clearInterval(timer) };
}

// Children make and check messages without allocating: what is weighed is the transport. All messages are `messageOf(bytes, 0)`
// but for their number.

async function sink(transport: Transport, task: ChildTask): Promise<void> {
  const { count = 0, bytes = 64, bytesPerSecond = Infinity } = task;
  const expected = messageOf(bytes, 0);
  const view = new DataView(expected.buffer);
  const start = performance.now();
  let taken = 0;
  for (let n = 0; n < count; n++) {
    const envelope = await transport.recv();
    view.setUint32(16, n, true);
    if (!sameBytes(envelope.message, expected)) throw new Error(`message ${n} is damaged or out of order`);
    taken += envelope.message.length;
    envelope.release();
    const due = start + (taken / bytesPerSecond) * 1_000;
    if (performance.now() < due - 5) await Bun.sleep(due - performance.now());
  }
}

async function source(transport: Transport, { to = "", count = 0, bytes = 64 }: ChildTask): Promise<void> {
  const peer = await transport.connect(to);
  const message = messageOf(bytes, 0);
  const view = new DataView(message.buffer);
  for (let n = 0; n < count; n++) {
    view.setUint32(16, n, true);
    await transport.send(peer, message);
  }
}

async function main(task: ChildTask): Promise<void> {
  const troubles: string[] = [];
  const transport = await pick(task.transport ?? "default", {
    strict: true,
    ...task.options,
    onEvent: (event) => void (event.type === "error" && troubles.push(event.error.message)),
  });
  say({ event: "open", addresses: transport.addresses });
  if (task.role === "idle") return;
  const memory = watchMemory();
  await (task.role === "sink" ? sink(transport, task) : source(transport, task));
  const { undelivered } = await transport.close();
  memory.stop();
  say({ event: "done", growth: memory.growth(), undelivered, troubles });
}

if (import.meta.main) {
  main(JSON.parse(process.argv[2] ?? "{}") as ChildTask).catch((error: unknown) => {
    say({ event: "failed", error: String(error) });
    process.exit(1);
  });
}
