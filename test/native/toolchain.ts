/** Compiles and runs C programs with the system's compiler: zig has the sanitizers' code, but not their runtime. */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";

export const ROOT = resolve(import.meta.dir, "..", "..");

/** In CI a missing tool is a failure, not a reason to look away. */
export const IN_CI = !!process.env["CI"];

export const COMPILER: string | null =
  ["CC", "gcc", "clang"]
    .map((name) => (name === "CC" ? process.env["CC"] : name))
    .map((name) => (name ? Bun.which(name) : null))
    .find((path) => path !== null) ?? null;

const STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes"];
const BASE = ["-std=c11", "-D_GNU_SOURCE", ...STRICT, "-Werror", "-g", "-fPIC", "-pthread"];

export const ADDRESS = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
export const THREAD = ["-O1", "-fsanitize=thread"];
export const PLAIN = ["-O1"];

export interface Finished {
  readonly code: number | null;
  readonly output: string;
}

/** Waits for a program; both of its streams as one text. */
export async function finish(words: readonly string[], env: Record<string, string> = {}): Promise<Finished> {
  const child = Bun.spawn([...words], { env: { ...process.env, ...env }, stdout: "pipe", stderr: "pipe" });
  const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  await child.exited;
  return { code: child.exitCode, output: out + err };
}

async function compile(...words: string[]): Promise<void> {
  const { code, output } = await finish([COMPILER!, ...BASE, ...words]);
  if (code !== 0 || output !== "") throw new Error(`${COMPILER} ${words.join(" ")}\n${output}`);
}

/** A folder of its own for what is built, gone when disposed of. */
export class Workshop {
  readonly folder = mkdtempSync(join(tmpdir(), "zap-native-"));

  path(...names: string[]): string {
    return join(this.folder, ...names);
  }

  /** Compiles each source once, `flags` and all, for programs to be linked from. Returns the object files. */
  async objects(name: string, sources: readonly string[], flags: readonly string[]): Promise<string[]> {
    mkdirSync(this.path(name));
    const jobs = sources.map((source) => ({ source, object: this.path(name, `${basename(source)}.o`) }));
    const waiting = [...jobs];
    const worker = async () => {
      for (let job = waiting.shift(); job; job = waiting.shift()) {
        await compile(...flags, `-I${ROOT}/shim/include`, "-c", job.source, "-o", job.object);
      }
    };
    await Promise.all([worker(), worker()]);
    return jobs.map(({ object }) => object);
  }

  async link(name: string, inputs: readonly string[], flags: readonly string[]): Promise<string> {
    await compile(...flags, `-I${ROOT}/shim/include`, ...inputs, "-o", this.path(name), "-ldl");
    return this.path(name);
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The C files of a folder that start with `stem`. */
export function sources(folder: string, stem = ""): string[] {
  return readdirSync(join(ROOT, folder))
    .filter((file) => file.startsWith(stem) && file.endsWith(".c"))
    .sort()
    .map((file) => join(ROOT, folder, file));
}

/** What `libzap_gpudirect` is made of on Linux. */
export function gpudirectSources(): string[] {
  const common = ["arena", "fail", "handles", "library", "mapping", "rows", "service", "thread"];
  return [
    ...sources("shim/gpudirect").filter((path) => !path.endsWith("/elsewhere.c")),
    ...common.map((name) => join(ROOT, "shim", "common", `${name}.c`)),
  ];
}
