/** An empty project with the package installed from its tarball, as a user would have it. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { platformHere, platformLabel, SHIMS, type ShimName } from "../../lib/ffi/index.ts";
import { theNative } from "../support/native.ts";

const ROOT = join(import.meta.dir, "..", "..");
const SUFFIX = process.platform === "darwin" ? "dylib" : "so";

export const LABEL = platformLabel(platformHere());

/** The shims that a compiled executable carries on this platform. */
export const CARRIED = (Object.keys(SHIMS) as ShimName[]).filter(
  (name) => (name === "libzap_uma_metal") === (process.platform === "darwin"),
);

const folders: string[] = [];

export function temporary(): string {
  const folder = mkdtempSync(join(tmpdir(), "zap-package-"));
  folders.push(folder);
  return folder;
}

/** For `afterAll`: removes every folder. */
export function forgetProjects(): void {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

/** The temporary folder of what is run: compiled executables leave there what they unpack. */
function unpacked(): string {
  return (unpackedFolder ??= temporary());
}

let unpackedFolder: string | null = null;

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a command as on a machine that has Bun and nothing else of ours: no zig, no settings. Standard input is empty.
 */
export async function run(
  command: readonly string[],
  cwd: string,
  env: Record<string, string> = {},
): Promise<Ran> {
  const child = Bun.spawn([...command], {
    cwd,
    env: { PATH: `${dirname(process.execPath)}:/usr/bin:/bin`, HOME: cwd, TMPDIR: unpacked(), ...env },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
    timeout: 60_000,
  });
  const [stdout, stderr, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { code, stdout, stderr };
}

export async function succeed(
  command: readonly string[],
  cwd: string,
  env?: Record<string, string>,
): Promise<string> {
  const { code, stdout, stderr } = await run(command, cwd, env);
  if (code !== 0) throw new Error(`${command.join(" ")} ended with ${code}\n${stdout}\n${stderr}`);
  return stdout;
}

/** Packs the package with the shims of this platform. Returns the path of the tarball. */
export async function pack({ withNative = true } = {}): Promise<string> {
  const stage = temporary();
  const { files } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { files: string[] };
  // What git ignores must go in all the same.
  for (const each of ["package.json", ".gitignore", ...files.filter((file) => file !== "native")]) {
    cpSync(join(ROOT, each), join(stage, each), { recursive: true });
  }
  if (withNative) {
    const folder = join(stage, "native", LABEL);
    mkdirSync(folder, { recursive: true });
    for (const name of Object.keys(SHIMS)) {
      cpSync(join(theNative().shims, `${name}.${SUFFIX}`), join(folder, `${name}.${SUFFIX}`));
    }
  }
  // What builds the libraries of every platform stays out of it.
  const words = ["pm", "pack", "--filename", "zap.tgz", "--quiet", "--ignore-scripts"];
  await succeed([process.execPath, ...words], stage);
  return join(stage, "zap.tgz");
}

/** A new project with the tarball installed. */
export async function install(tarball: string): Promise<string> {
  const project = temporary();
  writeFileSync(join(project, "package.json"), '{ "name": "project", "private": true, "type": "module" }\n');
  await succeed([process.execPath, "add", tarball], project);
  return project;
}

/** Where the installed package keeps its shims. */
export function nativeIn(project: string): string {
  return join(project, "node_modules", "@luxfi", "zap", "native", LABEL);
}
