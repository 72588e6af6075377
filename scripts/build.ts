#!/usr/bin/env bun
/**
 * `bun run build`: builds the native part with zig, the one toolchain that it needs, into `native/<platform>/`.
 * With `--all` or the names of platforms: for others, from any of them. With the name of a step of build.zig: that step instead.
 *
 * Only a build that names no platform is for this machine alone: where pkg-config knows libdpdk, the DPDK library is compiled against it.
 * What is built by name is for others, and the same from wherever it is built: never against this machine's libdpdk.
 */
import { mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { platformHere, platformLabel } from "../lib/ffi/platform.ts";
import { findLibdpdk, zigOptions } from "./libdpdk.ts";
import { zigPath } from "./zig.ts";

const ROOT = join(import.meta.dir, "..");
const NATIVE = join(ROOT, "native");

/** The folder in `native/`, and zig's name for what its libraries must run on. */
const TARGETS: Readonly<Record<string, string>> = {
  "linux-x64": "x86_64-linux-gnu.2.17",
  "linux-arm64": "aarch64-linux-gnu.2.17",
  "linux-x64-musl": "x86_64-linux-musl",
  "linux-arm64-musl": "aarch64-linux-musl",
  "darwin-x64": "x86_64-macos.13.0",
  "darwin-arm64": "aarch64-macos.13.0",
};

/** Each step, and whether it can be made for other platforms. */
const STEPS: Readonly<Record<string, boolean>> = {
  "check-cuda": true,
  doubles: false,
  ptx: false,
  "test-native": false,
};

const HELP = `usage: bun run build [platform...] [--all] [step...]

  platform  ${Object.keys(TARGETS).join(", ")};
            default: this one, and its DPDK library against this machine's libdpdk where pkg-config knows it
  --all     every platform, to be used anywhere: without DPDK
  step      ${Object.keys(STEPS).join(", ")}: that instead of the libraries, into zig-out/;
            check-cuda for another platform into zig-out/<platform>/bin
`;

function fail(message: string): never {
  process.stderr.write(`build: ${message}\n`);
  process.exit(1);
}

interface Asked {
  readonly labels: readonly string[];
  /** No platform was named: what is built is for this machine alone. */
  readonly forHere: boolean;
  readonly steps: readonly string[];
}

function asked(words: readonly string[]): Asked {
  const labels = new Set<string>();
  const steps = new Set<string>();
  for (const word of words) {
    if (word === "--help" || word === "-h") {
      process.stdout.write(HELP);
      process.exit(0);
    }
    if (word === "--all") Object.keys(TARGETS).forEach((label) => labels.add(label));
    else if (Object.hasOwn(TARGETS, word)) labels.add(word);
    else if (Object.hasOwn(STEPS, word)) steps.add(word);
    else fail(`${JSON.stringify(word)} is no platform and no step\n${HELP.trimEnd()}`);
  }
  const bound = [...steps].find((step) => !STEPS[step]);
  if (bound !== undefined && labels.size > 0)
    fail(`${bound} is made for this machine alone: name no platform with it`);
  const forHere = labels.size === 0 && steps.size === 0;
  if (forHere) labels.add(here());
  return { labels: [...labels], forHere, steps: [...steps] };
}

function here(): string {
  const label = platformLabel(platformHere());
  if (Object.hasOwn(TARGETS, label)) return label;
  return fail(`there are no libraries for ${label}; name one of ${Object.keys(TARGETS).join(", ")}`);
}

function run(zig: string, ...words: string[]): void {
  const { exitCode } = Bun.spawnSync([zig, "build", ...words], {
    cwd: ROOT,
    stdin: "ignore",
    stdout: "inherit",
    stderr: "inherit",
  });
  // Thrown, so that whoever has begun something can clear it away.
  if (exitCode !== 0) throw new Error(`zig build ${words.join(" ")} failed`);
}

/** Builds for one platform and returns the size of each library in bytes. */
function build(zig: string, label: string, options: readonly string[]): Map<string, number> {
  // Beside its place, so that a library appears there whole: a process that loads it meanwhile gets the old or the new one.
  const fresh = join(NATIVE, `.${label}.${process.pid}`);
  const place = join(NATIVE, label);
  const sizes = new Map<string, number>();
  try {
    run(zig, `-Dtarget=${TARGETS[label]}`, ...options, "--prefix", fresh);
    mkdirSync(place, { recursive: true });
    for (const file of readdirSync(join(fresh, "lib")).sort()) {
      const built = join(fresh, "lib", file);
      sizes.set(file.slice(0, file.indexOf(".")), statSync(built).size);
      renameSync(built, join(place, file));
    }
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  return sizes;
}

function table(built: ReadonlyMap<string, ReadonlyMap<string, number>>): string {
  const names = [...new Set([...built.values()].flatMap((sizes) => [...sizes.keys()]))];
  const kib = (bytes: number) => (bytes / 1024).toFixed(1);
  const rows = [["KiB", ...names, "together"]];
  for (const [label, sizes] of built) {
    const each = names.map((name) => sizes.get(name) ?? 0);
    rows.push([label, ...each.map(kib), kib(each.reduce((sum, size) => sum + size, 0))]);
  }
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows
    .map((row) =>
      row.map((cell, at) => (at === 0 ? cell.padEnd(widths[at]!) : cell.padStart(widths[at]!))).join("  "),
    )
    .join("\n");
}

const { labels, forHere, steps } = asked(process.argv.slice(2));
const zig = zigPath(ROOT);
if (typeof zig !== "string") fail(zig.fault);
try {
  if (steps.length > 0) {
    if (labels.length === 0) run(zig, ...steps);
    for (const label of labels) run(zig, ...steps, `-Dtarget=${TARGETS[label]}`);
  } else {
    const libdpdk = forHere ? findLibdpdk() : null;
    const options = libdpdk === null ? [] : zigOptions(libdpdk);
    const built = new Map(labels.map((label) => [label, build(zig, label, options)]));
    console.log(table(built));
    if (libdpdk !== null) console.log(`libzap_dpdk is for this machine alone: with DPDK ${libdpdk.version}`);
  }
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
}
