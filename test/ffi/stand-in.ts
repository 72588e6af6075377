/**
 * Stand-ins for shims, for tests of the loader alone: libraries with the exports of a shim that answer whatever a test says. What a
 * shim does is tested with the real ones.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ABI_VERSION, SHIMS, type ShimName, type Verbs } from "../../lib/ffi/index.ts";
import { compileLibrary } from "../support/compiler.ts";

const folders: string[] = [];

/** A new empty folder. */
export function temporary(): string {
  const folder = mkdtempSync(join(tmpdir(), "zap-shims-"));
  folders.push(folder);
  return folder;
}

/** For `afterAll`: removes every folder. */
export function forgetStandIns(): void {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

export interface StandIn {
  readonly abi?: number;
  /** Verbs that it lacks. */
  readonly without?: readonly string[];
  /** What a verb returns; 0 where nothing is said. */
  readonly returns?: Readonly<Record<string, number>>;
  /** What `error` says. */
  readonly error?: string;
  /** Further C. */
  readonly more?: string;
}

/** Compiles one into a folder of its own. Returns the folder, for `ZAP_LIB_DIR`. */
export function standIn(name: ShimName, of: StandIn = {}, options: readonly string[] = []): string {
  const folder = temporary();
  compileLibrary(source(name, of), fileIn(folder, name), options);
  return folder;
}

export function fileIn(folder: string, name: ShimName): string {
  return join(folder, `${name}.${process.platform === "darwin" ? "dylib" : "so"}`);
}

/** The bytes of a healthy one. Compiled once. */
export function standInBytes(name: ShimName): Uint8Array {
  const known = healthy.get(name) ?? new Uint8Array(readFileSync(fileIn(standIn(name), name)));
  healthy.set(name, known);
  return known;
}

const healthy = new Map<ShimName, Uint8Array>();

function source(
  name: ShimName,
  { abi = ABI_VERSION, without = [], returns = {}, error = "", more = "" }: StandIn,
): string {
  const { prefix, verbs } = SHIMS[name];
  const answers: Record<string, string> = {
    abi: `return ${abi};`,
    error: `snprintf(a0, a1, "%s", ${JSON.stringify(error)}); return (int) strlen(a0);`,
  };
  const functions = Object.entries(verbs as Verbs)
    .filter(([verb]) => !without.includes(verb))
    .map(([verb, { args }]) => {
      const types = args.map(
        (type, at) =>
          `${{ ptr: "char *", u32: "unsigned ", i32: "int ", u64: "unsigned long long " }[type]}a${at}`,
      );
      return `int ${prefix}${verb}(${types.join(", ") || "void"}) { ${answers[verb] ?? `return ${returns[verb] ?? 0};`} }`;
    });
  return ["#include <stdio.h>", "#include <string.h>", ...functions, more].join("\n");
}
