/** How the values of options are read, the same in every benchmark. Each function throws an Error that names what cannot be understood. */

/** Below the library's default limit of a frame. */
export const SIZE_MAX = 8 * 1024 * 1024;
export const ROUNDS_MAX = 1_000;

const UNITS: Readonly<Record<string, number>> = { "": 1, b: 1, kib: 1024, mib: 1024 * 1024 };

export function parseList(text: string): string[] {
  return text.split(",").map((part) => part.trim());
}

/** Message sizes as `256,64KiB,1MiB`, each once. */
export function parseSizes(text: string, least: number): number[] {
  return [...new Set(parseList(text).map((part) => parseSize(part, least)))];
}

function parseSize(text: string, least: number): number {
  const match = /^(\d+) ?([a-z]*)$/i.exec(text);
  const size = match === null ? NaN : Number(match[1]) * (UNITS[match[2]!.toLowerCase()] ?? NaN);
  if (!(size >= least && size <= SIZE_MAX)) {
    throw new Error(
      `--sizes: ${least} to ${SIZE_MAX} bytes (or KiB, MiB) are possible, got ${JSON.stringify(text)}`,
    );
  }
  return size;
}

export function parseRounds(text: string): number {
  const rounds = /^\d+$/.test(text) ? Number(text) : NaN;
  if (rounds >= 1 && rounds <= ROUNDS_MAX) return rounds;
  throw new Error(`--rounds: a whole number from 1 to ${ROUNDS_MAX} is needed, got ${JSON.stringify(text)}`);
}

/** `parse` of the command line. What it does not understand ends the program: one line on standard error, and status 2. */
export function optionsOrEnd<T extends { readonly help: boolean }>(
  name: string,
  help: string,
  parse: (args: string[]) => T,
): T {
  let options: T;
  try {
    options = parse(process.argv.slice(2));
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    console.error(`${name}: ${text.replaceAll("\n", " ")} (see --help)`);
    process.exit(2);
  }
  if (options.help) {
    console.log(help.trimEnd());
    process.exit(0);
  }
  return options;
}
