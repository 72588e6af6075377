/** What `zap listen` and `zap send` have in common on the command line, and the transport that it asks for. */
import { randomBytes, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { parseArgs, type ParseArgsConfig } from "node:util";
import {
  AddressError,
  ConfigError,
  pick,
  UnknownTransportError,
  type TlsOptions,
  type Transport,
  type TransportOptions,
} from "../../index.ts";
import { CommandError, fileErrorText, UsageError, type Io } from "./io.ts";
import { printable } from "./names.ts";

const PATIENCE_SECONDS = "60";
/** Nobody waits longer than this for the far end to hang up when a command ends. */
const CLOSE_MILLIS = 2_000;
const NODE_ID_BYTES_MAX = 60;

export const SHARED_OPTIONS = {
  id: { type: "string" },
  allow: { type: "string", multiple: true },
  "tls-cert": { type: "string" },
  "tls-key": { type: "string" },
  "tls-ca": { type: "string" },
  transport: { type: "string" },
  timeout: { type: "string", default: PATIENCE_SECONDS },
  help: { type: "boolean", short: "h", default: false },
} as const satisfies ParseArgsConfig["options"];

export const SHARED_USAGE = `  --id ID           who we say we are; default: the host's name with a random
                    part, or with TLS the common name of the certificate
  --allow ID        connect with this node id only; may be given several times
  --tls-cert FILE   TLS 1.3 with certificates on both sides, all in PEM: ours,
  --tls-key FILE    its key, and the authorities that the other side's must
  --tls-ca FILE     come from. All three or none
  --transport NAME  the preferred transport; default: ZAP_TRANSPORT, or best
  --timeout SECONDS give up when nothing moves for this long; default ${PATIENCE_SECONDS}
  -h, --help        print this
`;

export interface SharedValues {
  readonly id?: string | undefined;
  readonly allow?: string[] | undefined;
  readonly "tls-cert"?: string | undefined;
  readonly "tls-key"?: string | undefined;
  readonly "tls-ca"?: string | undefined;
  readonly transport?: string | undefined;
}

/** `util.parseArgs` with `UsageError` for a command line that it does not take. */
export function parseCommandLine<T extends ParseArgsConfig>(config: T): ReturnType<typeof parseArgs<T>> {
  try {
    return parseArgs(config);
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

/** A positive number of the command line. Throws `UsageError`. */
export function positiveNumber(option: string, text: string, whole: boolean): number {
  const value = Number(text);
  const fits = /^\d+(\.\d+)?$/.test(text) && value > 0 && value <= Number.MAX_SAFE_INTEGER;
  if (fits && (!whole || Number.isInteger(value))) return value;
  throw new UsageError(
    `${option}: a positive ${whole ? "integer" : "number"} is needed, got ${JSON.stringify(text)}`,
  );
}

export function patienceOf(seconds: string): number {
  return positiveNumber("--timeout", seconds, false) * 1000;
}

/** Opens the transport that the command line asks for. Throws `UsageError`, `CommandError` or what `pick` throws. */
export async function openTransport(
  io: Io,
  values: SharedValues,
  options: Pick<TransportOptions, "listen" | "onEvent">,
): Promise<Transport> {
  const tls = await readTls(values);
  const { id: nodeId = tls === null ? defaultId() : certificateId(tls), allow, transport } = values;
  try {
    return await pick(transport, {
      ...options,
      nodeId,
      ...(allow === undefined ? {} : { allow }),
      ...(tls === null ? {} : { tls }),
      limits: { closeMillis: CLOSE_MILLIS },
      // The command itself says what was picked.
      env: { ...io.env, ZAP_TRANSPORT_QUIET: "1" },
    });
  } catch (error) {
    if (error instanceof UnknownTransportError && transport !== undefined) {
      throw new UsageError(`--transport: ${error.message}`);
    }
    if (error instanceof ConfigError && error.message.startsWith("nodeId: ")) {
      throw new UsageError(`--id: ${error.message.slice("nodeId: ".length)}`);
    }
    throw usageFault(error);
  }
}

/** An address that cannot be read is a wrong command line; one that cannot be used is not. */
export function usageFault(error: unknown): unknown {
  return error instanceof AddressError && error.cause === undefined ? new UsageError(error.message) : error;
}

/** Whether the command line asks for TLS. Throws `UsageError` where it does so by halves. */
export function wantsTls(values: SharedValues): boolean {
  const given = (["tls-cert", "tls-key", "tls-ca"] as const).filter((name) => values[name] !== undefined);
  if (given.length % 3 === 0) return given.length === 3;
  throw new UsageError(
    `TLS needs all of --tls-cert, --tls-key and --tls-ca, got only ${given.map((name) => `--${name}`).join(" and ")}`,
  );
}

async function readTls(values: SharedValues): Promise<TlsOptions | null> {
  if (!wantsTls(values)) return null;
  const read = async (name: "tls-cert" | "tls-key" | "tls-ca"): Promise<string> => {
    const path = values[name] ?? "";
    try {
      return await readFile(path, "utf8");
    } catch (error) {
      throw new CommandError(`--${name} ${printable(path)}: ${fileErrorText(error)}`);
    }
  };
  return { cert: await read("tls-cert"), key: await read("tls-key"), ca: await read("tls-ca") };
}

/** With TLS, the node id must stand in the certificate. */
function certificateId({ cert }: TlsOptions): string {
  try {
    const { subject } = new X509Certificate(String(cert));
    const name = /^CN=(.+)$/m.exec(subject)?.[1]?.trim();
    if (name) return name;
  } catch (error) {
    throw new CommandError(`--tls-cert: no certificate can be read from it`, { cause: error });
  }
  throw new CommandError(
    "--tls-cert: the certificate has no common name; say with --id which of its names to use",
  );
}

/** Readable, and different for every process. */
function defaultId(): string {
  const suffix = `-${randomBytes(3).toString("hex")}`;
  const host = hostname().replace(/[^\w.-]/g, "") || "zap";
  return host.slice(0, NODE_ID_BYTES_MAX - suffix.length) + suffix;
}

/** What to warn of before anything goes over `address`, or null. */
export function exposure(address: string, values: SharedValues, what: string): string | null {
  if (wantsTls(values) || isLoopback(address)) return null;
  return `warning: no TLS on ${printable(address)}: ${what}`;
}

/** Only this host can be at the other end. */
export function isLoopback(address: string): boolean {
  const text = address.trim();
  if (text.startsWith("unix:")) return true;
  const host = text.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
  return (
    /^127\.\d+\.\d+\.\d+$/.test(host) || ["::1", "localhost", "::ffff:127.0.0.1"].includes(host.toLowerCase())
  );
}
