#!/usr/bin/env bun
/** `zap-info`: what this host can do, and which transport `pick()` would open here. Opens no port and changes nothing. */
import { parseArgs } from "node:util";
import {
  ConfigError,
  probe,
  probeAll,
  resolveSelection,
  UnknownTransportError,
  verifyBackends,
  VERSION,
  ZapError,
} from "../index.ts";
import { libDirFault } from "../ffi/index.ts";
import type { BackendReport, Probe, Selection } from "../index.ts";
import { checkSettings } from "../transport/settings.ts";
import { checkVerifySettings, wantedBackend } from "../verify/index.ts";
import { painter, wrap, type Output } from "./style.ts";
import { details, table } from "./table.ts";
import { verifyLines } from "./verify.ts";

const USAGE = `Usage: zap-info [--json | --check NAME]

Shows which transports this host can run, what the others lack and how to mend
that, which one pick() opens here, and which backends verify signatures. It
opens no port and changes nothing.

  --json        print the same as one JSON object
  --check NAME  say in one line whether the transport NAME is usable here
  -h, --help    print this

Settings: ZAP_TRANSPORT, ZAP_TRANSPORT_STRICT, ZAP_LIB_DIR, ZAP_CUDA_DEVICE,
ZAP_DEVICE_MILLIS, ZAP_DPDK_VDEV, ZAP_VERIFY_BACKEND; LD_LIBRARY_PATH, NO_COLOR
and FORCE_COLOR. Only checked: ZAP_UMA_POOL_BYTES, ZAP_DEBUG,
ZAP_TRANSPORT_QUIET, ZAP_VERIFY_WORKERS, ZAP_VERIFY_GPU_LEAST,
ZAP_VERIFY_GPU_BYTES.

Exit status: 0 fine, or NAME is usable; 1 a setting has a value that cannot be
used or asks for what this host cannot do, or NAME is not usable; 2 a wrong
option, or NAME is no transport.
`;

export interface Io {
  readonly stdout: Output;
  readonly stderr: Output;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Where the facts come from. Another one makes a host up. */
export interface Sources {
  readonly probe: (name: string) => Promise<Probe>;
  readonly probeAll: () => Promise<readonly Probe[]>;
  /** Default: this host's. */
  readonly verifyBackends?: () => readonly BackendReport[];
}

/** The backends of batch verification, and what is wrong with their settings. */
interface Verification {
  readonly reports: readonly BackendReport[];
  readonly error: ZapError | null;
}

type Outcome = { readonly selection: Selection } | { readonly error: ZapError };

/** Runs the command and resolves with its exit status. */
export async function main(
  argv: readonly string[],
  io: Io = process,
  sources: Sources = { probe, probeAll },
): Promise<number> {
  let options;
  try {
    options = parse(argv);
  } catch (error) {
    io.stderr.write(`zap-info: ${error instanceof Error ? error.message : String(error)}\n\n${USAGE}`);
    return 2;
  }
  if (options.help) {
    io.stdout.write(USAGE);
    return 0;
  }
  const libDir = libDirFault(io.env);
  if (libDir !== null) io.stderr.write(`zap-info: ${libDir}; it is passed over\n`);
  if (options.check !== undefined) return check(options.check, io, sources);

  const probes = await sources.probeAll();
  const outcome = await resolve(probes, io);
  const verification = lookAtVerification((sources.verifyBackends ?? verifyBackends)(), io);
  io.stdout.write(
    options.json ? json(probes, outcome, verification) : page(probes, outcome, verification, io),
  );
  // What is missing stands on the page already; the first line says what went wrong.
  const errors = ["error" in outcome ? outcome.error : null, verification.error];
  return errors.reduce((code, error) => (error === null ? code : refuse(error, io)), 0);
}

function lookAtVerification(reports: readonly BackendReport[], { env }: Io): Verification {
  try {
    checkVerifySettings(env, reports);
    return { reports, error: null };
  } catch (error) {
    if (error instanceof ZapError) return { reports, error };
    throw error;
  }
}

function refuse({ message, code }: ZapError, io: Io): number {
  io.stderr.write(`zap-info: ${message.split("\n")[0]} (${code})\n`);
  return 1;
}

function parse(argv: readonly string[]) {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      json: { type: "boolean", default: false },
      check: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.json && values.check !== undefined) throw new Error("--json and --check cannot go together");
  return values;
}

async function check(name: string, io: Io, sources: Sources): Promise<number> {
  try {
    const { name: found, available, wire, memory, prerequisites } = await sources.probe(name);
    // A host that could is no use to a `pick` that refuses the settings.
    checkSettings(io.env);
    const missing = prerequisites.filter((each) => !each.met).map((each) => each.name);
    io.stdout.write(
      available
        ? `${found} is usable here: ${wire} over ${memory}\n`
        : `${found} is not usable here; missing: ${missing.join(", ")}\n`,
    );
    return available ? 0 : 1;
  } catch (error) {
    if (error instanceof ConfigError) return refuse(error, io);
    if (!(error instanceof UnknownTransportError)) throw error;
    io.stderr.write(`zap-info: ${error.message}\n`);
    return 2;
  }
}

async function resolve(probes: readonly Probe[], { env }: Io): Promise<Outcome> {
  try {
    return { selection: await resolveSelection(undefined, { env, probes }) };
  } catch (error) {
    if (error instanceof ZapError) return { error };
    throw error;
  }
}

function platform(): string {
  return `${process.platform}-${process.arch}`;
}

function page(
  probes: readonly Probe[],
  outcome: Outcome,
  { reports, error }: Verification,
  { stdout, env }: Io,
): string {
  const paint = painter(stdout, env);
  const selection = "selection" in outcome ? outcome.selection : null;
  const lines = [
    `${paint("bold", `@luxfi/zap ${VERSION}`)} on Bun ${Bun.version}, ${platform()}`,
    "",
    ...table(probes, selection?.name ?? null, paint),
    ...probes.flatMap((each) => details(each, paint)),
    ...verifyLines(reports, error instanceof ConfigError ? null : wantedBackend(undefined, env), paint),
    "",
  ];
  if (selection) {
    const verdict = wrap(`pick() resolves to ${selection.name} here: ${selection.reason}.`, 78);
    lines.push(
      ...verdict.map((text, at) => `${at === 0 ? paint("green", "→") : " "} ${paint("bold", text)}`),
    );
  }
  return `${lines.join("\n")}\n`;
}

function json(probes: readonly Probe[], outcome: Outcome, { reports, error }: Verification): string {
  const transports = probes.map(({ name, built, available, wire, memory, device, caps, prerequisites }) => ({
    ...{ name, built, available, wire, memory, device, caps },
    prerequisites: prerequisites.map(({ name, met, seen, fix }) => ({ name, met, seen, fix })),
  }));
  const fault = error === null ? {} : { error: { code: error.code, message: error.message } };
  const verify = { backends: reports, ...fault };
  const facts = { version: VERSION, bun: Bun.version, platform: platform(), transports, verify };
  if ("error" in outcome) {
    const { code, message } = outcome.error;
    return `${JSON.stringify({ ...facts, picked: null, error: { code, message } }, null, 2)}\n`;
  }
  const { name, reason, tried } = outcome.selection;
  return `${JSON.stringify({ ...facts, picked: { name, reason, tried } }, null, 2)}\n`;
}

if (import.meta.main) {
  process.stdout.on("error", unwritten);
  try {
    process.exitCode = await main(process.argv.slice(2));
  } catch (error) {
    unwritten(error);
  }
}

/** The reader may stop early (`zap-info | head`); that is no news to anybody. Anything else is. */
function unwritten(error: unknown): void {
  process.exitCode = 1;
  if (error instanceof Error && "code" in error && error.code === "EPIPE") return;
  process.stderr.write(`zap-info: ${error instanceof Error ? error.message : String(error)}\n`);
}
