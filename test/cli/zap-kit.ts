/** Real `zap` processes, and hand-made senders and receivers, in folders of their own. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readFileMessage, type FileReceipt } from "../../lib/cli/transfer/messages.ts";
import { parse, pick, type Transport } from "../../lib/index.ts";
import { within } from "../support/wait.ts";

const ZAP = join(import.meta.dir, "..", "..", "lib", "cli", "zap.ts");
export const QUIET = { ZAP_TRANSPORT_QUIET: "1" };

export class TestFolder {
  readonly path = mkdtempSync(join(tmpdir(), "zap-cli-"));

  at(...parts: string[]): string {
    return join(this.path, ...parts);
  }

  async write(name: string, bytes: Uint8Array | string): Promise<string> {
    const path = this.at(name);
    await Bun.write(path, bytes);
    return path;
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** A `zap` of its own process; ended with the test. */
export class ZapProcess {
  readonly process: Bun.Subprocess<"ignore", "pipe", "pipe">;
  stdout = "";
  stderr = "";
  /** Where it listens, as its first line says. */
  readonly address: Promise<string>;
  private readonly drained: Promise<unknown>;

  constructor(argv: readonly string[], options: { cwd?: string; env?: Record<string, string> } = {}) {
    const { PATH = "", HOME = "" } = process.env;
    this.process = Bun.spawn([process.execPath, ZAP, ...argv], {
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      env: { PATH, HOME, ...options.env },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    const address = Promise.withResolvers<string>();
    this.address = within(address.promise, "the first line of zap listen", 10_000);
    this.address.catch(() => {});
    const read = async (stream: ReadableStream<Uint8Array>, take: (text: string) => void): Promise<void> => {
      const decoder = new TextDecoder();
      for await (const chunk of stream) take(decoder.decode(chunk, { stream: true }));
    };
    this.drained = Promise.all([
      read(this.process.stdout, (text) => {
        this.stdout += text;
        const found = /^listening on (.+)\n/.exec(this.stdout);
        if (found?.[1]) address.resolve(found[1]);
      }),
      read(this.process.stderr, (text) => (this.stderr += text)),
    ]);
  }

  /** Exit status, once it has ended and all that it wrote is here. */
  async end(millis = 20_000): Promise<number> {
    await within(
      Promise.all([this.process.exited, this.drained]),
      `the end of zap:\n${this.stdout}${this.stderr}`,
      millis,
    );
    return this.process.exitCode ?? 128;
  }

  [Symbol.dispose](): void {
    this.process.kill("SIGKILL");
  }
}

/** `zap listen` on a free port of loopback, saving into `folder`. */
export function startListen(folder: TestFolder, ...argv: string[]): ZapProcess {
  return new ZapProcess(["listen", "--address", "127.0.0.1:0", "--out", folder.at("in"), ...argv]);
}

/** A node that is no `zap`, to say what no `zap` says. */
export class HandMade {
  readonly transport: Transport;

  private constructor(transport: Transport) {
    this.transport = transport;
  }

  static async open(options: { nodeId?: string; listen?: string } = {}): Promise<HandMade> {
    return new HandMade(await pick("default", { ...options, env: QUIET, onEvent: () => {} }));
  }

  get address(): string {
    return this.transport.addresses[0] ?? "nowhere";
  }

  connect(address: string): Promise<string> {
    return this.transport.connect(address);
  }

  /** The next receipt. */
  async receipt(): Promise<FileReceipt> {
    const envelope = await within(this.transport.recv(), "a receipt");
    const message = readFileMessage(parse(envelope.message.slice()));
    envelope.release();
    if (message?.kind !== "receipt") throw new Error(`a receipt was expected, got ${Bun.inspect(message)}`);
    return message;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.transport.close();
  }
}

export function sha256(bytes: Uint8Array | string): Uint8Array {
  return new Uint8Array(new Bun.CryptoHasher("sha256").update(bytes).digest());
}

export function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

/** Bytes that differ from place to place, the same for the same length. */
export function someBytes(length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = length + 1;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    bytes[i] = state >>> 16;
  }
  return bytes;
}
