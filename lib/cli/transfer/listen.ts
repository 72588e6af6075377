/** `zap listen`: takes files in and says what came. */
import { constants } from "node:fs";
import { access, mkdir, realpath, stat } from "node:fs/promises";
import type { Transport, TransportEvent } from "../../index.ts";
import { Progress } from "../progress.ts";
import { painter } from "../style.ts";
import type { Incoming } from "./incoming.ts";
import { CommandError, EXIT_FAILED, EXIT_OK, fileErrorText, type Io } from "./io.ts";
import { printable } from "./names.ts";
import { Notices } from "./notices.ts";
import {
  exposure,
  openTransport,
  parseCommandLine,
  patienceOf,
  positiveNumber,
  SHARED_OPTIONS,
  SHARED_USAGE,
} from "./options.ts";
import { Receiver, type Arrival, type ReceiverEvents } from "./receiver.ts";
import { bytesText, rateText, timeText } from "./units.ts";

/** Loopback, so that nobody else can reach it unless asked for. */
export const DEFAULT_ADDRESS = "127.0.0.1:9999";

export const LISTEN_USAGE = `Usage: zap listen [--address HOST:PORT] [--out FOLDER] [options]

Receives files that "zap send" sends, checks the SHA-256 of each and saves it in
FOLDER under its own name, or one with a number where that name is taken.
Nothing is overwritten and nothing is written outside FOLDER. Ctrl-C ends it.

  --address ADDRESS where to listen: HOST:PORT, [V6]:PORT or unix:/PATH; port 0
                    takes a free one; default ${DEFAULT_ADDRESS}
  --out FOLDER      where files go; made if it is not there; default: here
  --once            end when the first sender has gone; the exit status says
                    whether all that it sent was saved
  --max-bytes N     refuse files above N bytes; default: no limit
  --json            one JSON object a line on standard output
${SHARED_USAGE}`;

export async function listen(argv: readonly string[], io: Io): Promise<number> {
  const { values } = parseCommandLine({
    args: [...argv],
    options: {
      ...SHARED_OPTIONS,
      address: { type: "string", default: DEFAULT_ADDRESS },
      out: { type: "string", default: "." },
      once: { type: "boolean", default: false },
      "max-bytes": { type: "string" },
      json: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    io.stdout.write(LISTEN_USAGE);
    return EXIT_OK;
  }
  const patienceMillis = patienceOf(values.timeout);
  const bytesMax =
    values["max-bytes"] === undefined
      ? Number.MAX_SAFE_INTEGER
      : positiveNumber("--max-bytes", values["max-bytes"], true);
  const what = "anyone who reaches it can send files, and reads along (see --tls-cert, --allow)";
  const warning = exposure(values.address, values, what);
  const folder = await prepareFolder(values.out);

  const page = values.json ? new JsonPage(io) : new TextPage(io);
  const stop = new AbortController();
  const signal = io.signal === undefined ? stop.signal : AbortSignal.any([io.signal, stop.signal]);
  let receiver: Receiver | null = null;
  const onEvent = (event: TransportEvent): void => {
    if (event.type === "connected") receiver?.connected(event.peer);
    else if (event.type === "disconnected") {
      // Losses of known peers are told by what became of their files.
      const why = event.error === null ? "the sender left" : event.error.message;
      receiver?.disconnected(event.peer, printable(why));
    } else if (event.type === "error" && event.peer === null) page.trouble(event.error.message);
  };

  const transport = await openTransport(io, values, { listen: values.address, onEvent });
  try {
    const events: ReceiverEvents = {
      progress: (open) => page.progress(open),
      saved: (arrival) => page.saved(arrival),
      failed: (label, peer, reason) => page.failed(label, peer, reason),
      ignored: (peer, text) => page.trouble(`${peer}: ignored ${text}`),
      left: () => values.once && stop.abort(),
    };
    receiver = new Receiver(transport, { folder, bytesMax, patienceMillis }, events);
    page.open(transport, folder);
    if (warning !== null) page.warn(warning);
    await receiver.run(signal);
  } finally {
    page.end();
    await transport.close();
  }
  return values.once && (page.failures > 0 || !stop.signal.aborted) ? EXIT_FAILED : EXIT_OK;
}

/** The real path of a folder that files can be written to. */
async function prepareFolder(path: string): Promise<string> {
  try {
    await mkdir(path, { recursive: true });
    const folder = await realpath(path);
    if (!(await stat(folder)).isDirectory()) throw new CommandError("it is not a folder");
    await access(folder, constants.W_OK | constants.X_OK);
    return folder;
  } catch (error) {
    const { code } = error as { code?: string };
    const text = code === "EEXIST" ? "it is not a folder" : fileErrorText(error);
    throw new CommandError(`--out ${printable(path)}: ${text}`);
  }
}

/** Where the command says what happens. */
abstract class Page {
  failures = 0;
  protected readonly io: Io;
  protected readonly bar: Progress;
  private readonly notices: Notices;

  constructor(io: Io) {
    this.io = io;
    this.bar = new Progress(io.stderr, io.env);
    this.notices = new Notices((line) => {
      this.bar.clear();
      io.stderr.write(line);
    });
  }

  abstract open(transport: Transport, folder: string): void;
  abstract saved(arrival: Arrival): void;

  /** Strangers can make these happen, so their number is held down. */
  failed(label: string, peer: string, reason: string): void {
    this.failures++;
    const cross = painter(this.io.stderr, this.io.env)("red", "✗");
    this.notices.say(`${cross} ${label} from ${printable(peer)}: ${printable(reason)}\n`);
  }

  trouble(text: string): void {
    this.notices.say(`zap: ${printable(text)}\n`);
  }

  warn(text: string): void {
    const paint = painter(this.io.stderr, this.io.env);
    this.io.stderr.write(`${paint("yellow", text)}\n`);
  }

  progress(open: readonly Incoming[]): void {
    const [first] = open;
    if (first === undefined) return this.bar.clear();
    const label = open.length === 1 ? first.label : `${open.length} files`;
    const sum = (of: (each: Incoming) => number): number => open.reduce((all, each) => all + of(each), 0);
    const millis = performance.now() - first.startedAt;
    this.bar.show({ label, done: sum((each) => each.received), total: sum((each) => each.size), millis });
  }

  end(): void {
    this.bar.clear();
  }

  protected line(text: string): void {
    this.bar.clear();
    this.io.stdout.write(`${text}\n`);
  }
}

class TextPage extends Page {
  override open({ addresses, nodeId, name }: Transport, folder: string): void {
    const paint = painter(this.io.stdout, this.io.env);
    for (const address of addresses) this.line(`listening on ${paint("bold", address)}`);
    const facts = `as ${printable(nodeId)} over ${name}; files go to ${printable(folder)}; Ctrl-C ends it`;
    this.line(paint("dim", facts));
  }

  override saved({ savedAs, size, hash, peer, millis }: Arrival): void {
    const paint = painter(this.io.stdout, this.io.env);
    const what = `${paint("green", "✓")} ${paint("bold", printable(savedAs))}  ${bytesText(size)}`;
    const how = `from ${printable(peer)} in ${timeText(millis)}, ${rateText(size, millis)}`;
    this.line(`${what} ${how}  ${paint("dim", `sha256 ${Buffer.from(hash).toString("hex")}`)}`);
  }
}

class JsonPage extends Page {
  override open({ addresses, nodeId, name }: Transport, folder: string): void {
    this.line(JSON.stringify({ event: "listening", addresses, nodeId, transport: name, folder }));
  }

  override saved({ savedAs, size, hash, peer, millis }: Arrival): void {
    const sha256 = Buffer.from(hash).toString("hex");
    this.line(
      JSON.stringify({
        event: "saved",
        name: savedAs,
        bytes: size,
        sha256,
        peer,
        millis: Math.round(millis),
      }),
    );
  }

  override failed(label: string, peer: string, reason: string): void {
    super.failed(label, peer, reason);
    this.line(JSON.stringify({ event: "failed", name: label, peer, reason }));
  }
}
