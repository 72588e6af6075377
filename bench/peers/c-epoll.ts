/** A pair in plain C over epoll: what this machine can do without a JavaScript runtime. Built when the benchmark starts. */
import { join } from "node:path";
import type { Prepared } from "../contenders.ts";

const FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"];
const BUILD_MILLIS = 60_000;

/** `CC` from the environment, or the first compiler that is there. */
function compiler(): string[] | null {
  const named = process.env["CC"]?.trim();
  if (named) return named.split(/\s+/);
  for (const name of ["cc", "gcc", "clang"]) if (Bun.which(name)) return [name];
  return Bun.which("zig") ? ["zig", "cc"] : null;
}

/** Builds `c/NAME.c` into `folder`: the program's path, or why that cannot be. */
export async function buildC(name: string, folder: string): Promise<string | { readonly skip: string }> {
  const cc = compiler();
  if (cc === null) return { skip: "no C compiler found: install one, or name it in CC" };
  if (!Bun.which(cc[0]!)) return { skip: `CC names ${cc[0]}, which is not there` };
  const program = join(folder, name);
  const source = join(import.meta.dir, "..", "c", `${name}.c`);
  const build = Bun.spawn([...cc, ...FLAGS, "-o", program, source], {
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
    timeout: BUILD_MILLIS,
    killSignal: "SIGKILL",
  });
  const [messages, code] = await Promise.all([build.stderr.text(), build.exited]);
  if (code !== 0) throw new Error(`${cc.join(" ")} ended with ${code}: ${messages.trim()}`);
  return program;
}

/** Builds the program into `folder`. */
export async function prepare(folder: string): Promise<Prepared> {
  if (process.platform !== "linux") return { skip: `epoll is a part of Linux, this is ${process.platform}` };
  const program = await buildC("epoll_pair", folder);
  return typeof program === "string" ? { command: [program] } : program;
}
