/** One measurement: a receiver process, a sender process, one result. */
import type { RoundTrip, Throughput } from "./clock.ts";

interface Common {
  readonly size: number;
  readonly warmMillis: number;
  readonly runMillis: number;
  /** The processor that each side is held on, or null where the system decides. */
  readonly processors: { readonly receive: number; readonly send: number } | null;
}
export type Job = Common & { readonly mode: "throughput" | "roundtrip" };

/** For starting both sides and for draining what is in flight, on top of the time that sending takes. */
const GRACE_SECONDS = 15;

const running = new Set<Child>();

/** Ends every process that is still there; for a runner that is told to stop. */
export function killAll(): void {
  for (const child of running) child.kill();
}

type Line = { readonly address?: string; readonly result?: Throughput | RoundTrip };

class Child {
  readonly #process: Bun.Subprocess<"pipe", "pipe", "pipe">;
  readonly #role: string;
  readonly #stderr: Promise<string>;
  readonly #lines: AsyncGenerator<Line>;

  constructor(command: readonly string[], role: "receive" | "send", job: Job, address: string) {
    const seconds = Math.ceil((job.warmMillis + job.runMillis) / 1_000) + GRACE_SECONDS;
    const numbers = [job.size, job.warmMillis, job.runMillis, seconds].map(String);
    const prefix = job.processors === null ? [] : ["taskset", "-c", String(job.processors[role])];
    this.#role = role === "receive" ? "receiver" : "sender";
    this.#process = Bun.spawn([...prefix, ...command, role, job.mode, ...numbers, address], {
      stdin: "pipe",
      stdout: "pipe",
      stderr: "pipe",
      env: { ...process.env, ZAP_TRANSPORT_QUIET: "1" },
      timeout: (seconds + 1) * 1_000,
      killSignal: "SIGKILL",
    });
    this.#stderr = this.#process.stderr.text().catch(() => "");
    this.#lines = readLines(this.#process.stdout);
    running.add(this);
  }

  /** The next line that the child prints. Rejects when it ends first. */
  async line(): Promise<Line> {
    const { value } = await this.#lines.next();
    return value ?? (await this.lost());
  }

  /** Rejects when the child ends. */
  async lost(): Promise<never> {
    await this.#process.exited;
    const { exitCode, signalCode } = this.#process;
    throw new Error(`the ${this.#role} ended with ${signalCode ?? `code ${exitCode}`}`);
  }

  kill(): void {
    this.#process.kill("SIGKILL");
  }

  /** Waits until the process is gone; resolves with what it said on stderr. */
  async gone(): Promise<string> {
    await this.#process.exited;
    running.delete(this);
    const said = (await this.#stderr).trim();
    return said === "" ? "" : `\n${this.#role}: ${said.slice(-2_000)}`;
  }
}

async function* readLines(stream: ReadableStream<Uint8Array>): AsyncGenerator<Line> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of stream) {
    text += decoder.decode(bytes, { stream: true });
    const lines = text.split("\n");
    text = lines.pop()!;
    for (const line of lines) yield JSON.parse(line) as Line;
  }
}

/** Rejects with what both sides said when one of them fails. Both are gone when it returns. */
export async function measure(command: readonly string[], job: Job): Promise<Throughput | RoundTrip> {
  const receiver = new Child(command, "receive", job, "-");
  const children = [receiver];
  try {
    const { address } = await receiver.line();
    if (address === undefined) throw new Error("the receiver gave no address");
    const sender = new Child(command, "send", job, address);
    children.push(sender);
    const [reporter, other] = job.mode === "throughput" ? [receiver, sender] : [sender, receiver];
    const { result } = await Promise.race([reporter.line(), other.lost()]);
    if (result === undefined) throw new Error("no result was given");
    return result;
  } catch (error) {
    for (const child of children) child.kill();
    const said = await Promise.all(children.map((child) => child.gone()));
    throw new Error(`${error instanceof Error ? error.message : String(error)}${said.join("")}`);
  } finally {
    for (const child of children) child.kill();
    await Promise.all(children.map((child) => child.gone()));
  }
}
