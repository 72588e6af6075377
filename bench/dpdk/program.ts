/** A program that runs on one processor while a measurement lasts, and is talked to by its standard streams. */
import type { Subprocess } from "bun";

const running = new Set<Program>();

/** Ends every program that is still there; for a runner that is told to stop. */
export function killPrograms(): void {
  for (const program of running) program.kill();
}

export class Program {
  /** All that it has said. */
  said = "";
  private readonly process: Subprocess<"pipe", "pipe", "pipe">;
  private readonly what: string;
  private heard = Promise.withResolvers<void>();

  constructor(words: readonly string[], processor: number, seconds: number) {
    this.what = words[0]!.slice(words[0]!.lastIndexOf("/") + 1);
    this.process = Bun.spawn(["taskset", "-c", String(processor), ...words], {
      ...{ stdin: "pipe", stdout: "pipe", stderr: "pipe" },
      timeout: seconds * 1_000,
      killSignal: "SIGKILL",
    });
    running.add(this);
    void this.listen(this.process.stdout);
    void this.listen(this.process.stderr);
    void this.process.exited.then(() => this.heard.resolve());
  }

  private async listen(stream: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    for await (const bytes of stream) {
      this.said += decoder.decode(bytes, { stream: true });
      this.heard.resolve();
    }
  }

  /** Resolves when `find` has found something in what it says. Rejects when it ends first. */
  async until<T>(find: (said: string) => T | null | undefined): Promise<T> {
    for (;;) {
      const heard = Promise.withResolvers<void>();
      this.heard = heard;
      const found = find(this.said);
      if (found !== null && found !== undefined) return found;
      if (this.process.exitCode !== null || this.process.signalCode !== null)
        throw new Error(`${this.what} ended without a result: ${this.said.trim().slice(-500)}`);
      await heard.promise;
    }
  }

  say(line: string): void {
    this.process.stdin.write(`${line}\n`);
    void this.process.stdin.flush();
  }

  kill(): void {
    this.process.kill("SIGKILL");
  }

  async end(): Promise<void> {
    this.kill();
    await this.process.exited;
    running.delete(this);
  }
}
