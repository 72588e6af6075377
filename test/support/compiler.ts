/** Small C libraries made while testing. */
import { findCompiler, HOW_TO_GET_ZIG, skipped } from "./tools.ts";

const compiler = findCompiler();

/** For `describe.skipIf` and `test.skipIf`. */
export const noCompiler: boolean =
  compiler === null && skipped("the loader", "a C compiler", `install cc, or ${HOW_TO_GET_ZIG}`) !== "";

/** Compiles `source` into the shared library `path`. `options` go to the compiler. */
export function compileLibrary(source: string, path: string, options: readonly string[] = []): void {
  if (compiler === null) throw new Error("there is no C compiler");
  const command = [...compiler, "-shared", "-fPIC", "-o", path, "-x", "c", "-", "-x", "none", ...options];
  const { success, stderr } = Bun.spawnSync(command, { stdin: Buffer.from(source) });
  if (!success) throw new Error(`${compiler.join(" ")} failed: ${stderr.toString()}`);
}
