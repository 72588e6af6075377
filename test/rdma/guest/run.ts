/** Runs the host's programs that the guest is built with. */
import { GuestError } from "./error.ts";

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly error: string;
}

export interface RunOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string;
}

export function tryRun(words: readonly string[], options: RunOptions = {}): Ran {
  const ran = Bun.spawnSync([...words], {
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    env: { ...process.env, ...options.env },
    stdin: options.input === undefined ? "ignore" : Buffer.from(options.input),
    stdout: "pipe",
    stderr: "pipe",
  });
  return { code: ran.exitCode ?? -1, out: ran.stdout.toString(), error: ran.stderr.toString() };
}

/** Standard output. @throws GuestError where the program does not end with 0. */
export function run(words: readonly string[], options: RunOptions = {}): string {
  const { code, out, error } = tryRun(words, options);
  if (code !== 0) throw new GuestError("host", `${words.join(" ")} ended with ${code}\n${error.trim()}`);
  return out;
}
