#!/usr/bin/env bun
/** `zap`: files from one host to another, over the best transport that both have. `docs/cli.md` tells the whole of it. */
import { VERSION } from "../index.ts";
import {
  errorText,
  EXIT_FAILED,
  EXIT_INTERRUPTED,
  EXIT_OK,
  EXIT_USAGE,
  UsageError,
  type Io,
} from "./transfer/io.ts";
import { listen, LISTEN_USAGE } from "./transfer/listen.ts";
import { printable } from "./transfer/names.ts";
import { send, SEND_USAGE } from "./transfer/send.ts";
import { main as info } from "./zap-info.ts";

const USAGE = `Usage: zap COMMAND [options]

  zap listen [--out FOLDER]   receive files
  zap send PEER FILE...       send files to a "zap listen"
  zap info                    what this host can do; the same as zap-info
  zap COMMAND --help          the options of a command

  -h, --help                  print this
  -V, --version               print the version

Exit status: 0 all is well; 1 something was not done; 2 a wrong command line;
130 ended by Ctrl-C in the middle.
`;

interface Command {
  readonly run: (argv: readonly string[], io: Io) => Promise<number>;
  readonly usage: string;
}

const COMMANDS: Readonly<Record<string, Command>> = {
  listen: { run: listen, usage: LISTEN_USAGE },
  send: { run: send, usage: SEND_USAGE },
  info: { run: info, usage: "" },
};

/** Runs one command and resolves with its exit status. Everything that it opened is closed then. */
export async function main(argv: readonly string[], io: Io = process): Promise<number> {
  const [word, ...rest] = argv;
  if (word === "--help" || word === "-h") {
    io.stdout.write(USAGE);
    return EXIT_OK;
  }
  if (word === "--version" || word === "-V") {
    io.stdout.write(`${VERSION}\n`);
    return EXIT_OK;
  }
  const command = word !== undefined && Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  if (command === undefined) {
    const fault = word === undefined ? "a command is needed" : `there is no command ${JSON.stringify(word)}`;
    io.stderr.write(`zap: ${fault}\n\n${USAGE}`);
    return EXIT_USAGE;
  }
  try {
    return await command.run(rest, io);
  } catch (error) {
    if (error instanceof UsageError) {
      io.stderr.write(`zap ${word}: ${error.message}\n\n${command.usage}`);
      return EXIT_USAGE;
    }
    // The text may come from the far end; each of its lines is made fit for a terminal.
    for (const line of errorText(error).split("\n")) io.stderr.write(`zap: ${printable(line, 500)}\n`);
    return EXIT_FAILED;
  }
}

/** A terminal and the program that started us may both pass on one Ctrl-C. */
const SAME_WISH_MILLIS = 300;

/** The first wish to end lets the command clean up; the second does not wait for that. */
function interruption(): AbortSignal {
  const controller = new AbortController();
  let firstAt = 0;
  const stop = (): void => {
    if (!controller.signal.aborted) {
      firstAt = performance.now();
      controller.abort(new Error("interrupted"));
    } else if (performance.now() - firstAt > SAME_WISH_MILLIS) process.exit(EXIT_INTERRUPTED);
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
  // The reader of our output has left; going on unheard is no use.
  process.stdout.on("error", () => controller.abort(new Error("the output is closed")));
  return controller.signal;
}

if (import.meta.main) {
  const { stdout, stderr, env } = process;
  process.exitCode = await main(process.argv.slice(2), { stdout, stderr, env, signal: interruption() });
}
