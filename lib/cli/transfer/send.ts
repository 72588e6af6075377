/** `zap send`: sends files and waits until the receiver confirms each. */
import { PeerUnreachableError, type Transport } from "../../index.ts";
import { Progress } from "../progress.ts";
import { painter } from "../style.ts";
import {
  CommandError,
  errorText,
  EXIT_FAILED,
  EXIT_INTERRUPTED,
  EXIT_OK,
  UsageError,
  type Io,
} from "./io.ts";
import { Link } from "./link.ts";
import { printable } from "./names.ts";
import {
  exposure,
  openTransport,
  parseCommandLine,
  patienceOf,
  SHARED_OPTIONS,
  SHARED_USAGE,
  type SharedValues,
  usageFault,
} from "./options.ts";
import { findSource, sendFile, type Source } from "./outgoing.ts";
import { bytesText, rateText, timeText } from "./units.ts";

export const SEND_USAGE = `Usage: zap send PEER FILE... [options]

Sends files to a "zap listen" at PEER (HOST:PORT, [V6]:PORT or unix:/PATH), one
after another. The exit status is 0 only if the receiver has confirmed every
file with the SHA-256 that it computed itself.

${SHARED_USAGE}`;

interface Wishes {
  readonly address: string;
  readonly sources: readonly Source[];
  readonly patienceMillis: number;
  readonly warning: string | null;
  readonly values: SharedValues;
}

export async function send(argv: readonly string[], io: Io): Promise<number> {
  const { values, positionals } = parseCommandLine({
    args: [...argv],
    allowPositionals: true,
    options: SHARED_OPTIONS,
  });
  if (values.help) {
    io.stdout.write(SEND_USAGE);
    return EXIT_OK;
  }
  const [address, ...paths] = positionals;
  if (address === undefined) throw new UsageError("a peer and at least one file are needed");
  if (paths.length === 0) throw new UsageError("at least one file is needed");
  const patienceMillis = patienceOf(values.timeout);
  const warning = exposure(address, values, "anyone on the way reads along (see --tls-cert)");
  const sources = await findSources(paths, io);
  if (sources === null) return EXIT_FAILED;
  return deliver(io, { address, sources, patienceMillis, warning, values });
}

/** All of them, or null after every fault was named: a call that cannot be done whole is not begun. */
async function findSources(paths: readonly string[], io: Io): Promise<Source[] | null> {
  const sources: Source[] = [];
  for (const path of paths) {
    try {
      sources.push(await findSource(path));
    } catch (error) {
      io.stderr.write(`zap: ${errorText(error)}\n`);
    }
  }
  if (sources.length === paths.length) return sources;
  io.stderr.write("zap: nothing was sent\n");
  return null;
}

async function deliver(io: Io, wishes: Wishes): Promise<number> {
  const lost = new AbortController();
  const signal = io.signal === undefined ? lost.signal : AbortSignal.any([io.signal, lost.signal]);
  let receiver: string | null = null;
  const transport = await openTransport(io, wishes.values, {
    onEvent: (event) => {
      if (event.type !== "disconnected" || (receiver !== null && event.peer !== receiver)) return;
      const { peer, error } = event;
      const text =
        error === null
          ? `the receiver ${peer} closed the connection`
          : `the receiver is gone: ${error.message}`;
      lost.abort(new CommandError(printable(text, 500)));
    },
  });
  try {
    receiver = await connect(transport, wishes.address, signal);
    const link = new Link(transport, receiver);
    link.run().catch((error: unknown) => lost.abort(error));
    return await sendAll(io, link, wishes, signal);
  } catch (error) {
    if (io.signal?.aborted) return EXIT_INTERRUPTED;
    throw lost.signal.aborted ? lost.signal.reason : error;
  } finally {
    await transport.close();
  }
}

async function connect(transport: Transport, address: string, signal: AbortSignal): Promise<string> {
  try {
    return await transport.connect(address, { signal });
  } catch (error) {
    if (!(error instanceof PeerUnreachableError)) throw usageFault(error);
    throw new CommandError(`${error.message}; does a "zap listen" run there?`, { cause: error });
  }
}

async function sendAll(
  io: Io,
  link: Link,
  { address, sources, patienceMillis, warning }: Wishes,
  signal: AbortSignal,
): Promise<number> {
  const { stdout, stderr, env } = io;
  const bar = new Progress(stderr, env);
  const [paint, paintError] = [painter(stdout, env), painter(stderr, env)];
  stdout.write(
    `sending to ${paint("bold", printable(link.peer))} at ${printable(address)} over ${link.transport.name}\n`,
  );
  if (warning !== null) stderr.write(`${paintError("yellow", warning)}\n`);
  let confirmed = 0;
  for (const source of sources) {
    const startedAt = performance.now();
    const label = printable(source.name);
    const onProgress = (done: number, total: number): void =>
      bar.show({ label, done, total, millis: performance.now() - startedAt });
    try {
      const { size, hash } = await sendFile(link, source, { signal, patienceMillis, onProgress });
      bar.clear();
      const millis = performance.now() - startedAt;
      const what = `${paint("green", "✓")} ${paint("bold", label)}  ${bytesText(size)}`;
      const how = `in ${timeText(millis)}, ${rateText(size, millis)}`;
      stdout.write(`${what} ${how}  ${paint("dim", `sha256 ${Buffer.from(hash).toString("hex")}`)}\n`);
      confirmed++;
    } catch (error) {
      bar.clear();
      const left = sources.length - confirmed;
      if (io.signal?.aborted) {
        stderr.write(`zap: interrupted; ${left} of ${sources.length} files not sent\n`);
        return EXIT_INTERRUPTED;
      }
      stderr.write(`${paintError("red", "✗")} ${errorText(error)}\n`);
      if (!signal.aborted) continue;
      stderr.write(`zap: ${left} of ${sources.length} files not confirmed\n`);
      return EXIT_FAILED;
    }
  }
  if (confirmed === sources.length) return EXIT_OK;
  stderr.write(`zap: ${sources.length - confirmed} of ${sources.length} files not confirmed\n`);
  return EXIT_FAILED;
}
