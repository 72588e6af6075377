/** Colour and line breaks for what people read in a terminal. */
import { styleText } from "node:util";

export interface Output {
  write(text: string): unknown;
  /** Whether a person sits at the other end. */
  readonly isTTY?: boolean | undefined;
}

export type Format = Parameters<typeof styleText>[0];
export type Paint = (format: Format, text: string) => string;

/**
 * How to colour text for this output. `FORCE_COLOR` decides where it is set (`0` and `false` mean none), then `NO_COLOR`
 * (any value but an empty one means none), then whether the output is a terminal.
 */
export function painter(output: Output, env: Readonly<Record<string, string | undefined>>): Paint {
  return coloured(output, env)
    ? (format, text) => styleText(format, text, { validateStream: false })
    : (_, text) => text;
}

function coloured(output: Output, env: Readonly<Record<string, string | undefined>>): boolean {
  const forced = env["FORCE_COLOR"];
  if (forced !== undefined) return !["0", "false"].includes(forced.trim().toLowerCase());
  if (env["NO_COLOR"]) return false;
  return output.isTTY === true && env["TERM"] !== "dumb";
}

/** Breaks plain text between words into lines of at most `width` columns; a word that is longer is cut. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/).flatMap((each) => cut(each, width))) {
    const longer = line === "" ? word : `${line} ${word}`;
    if (Bun.stringWidth(longer) <= width) {
      line = longer;
    } else {
      lines.push(line);
      line = word;
    }
  }
  lines.push(line);
  return lines;
}

function cut(word: string, width: number): string[] {
  const parts: string[] = [];
  let part = "";
  for (const char of word) {
    if (part !== "" && Bun.stringWidth(part + char) > width) {
      parts.push(part);
      part = "";
    }
    part += char;
  }
  parts.push(part);
  return parts;
}

/** Plain text filled up with blanks to `width` columns. */
export function pad(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - Bun.stringWidth(text)));
}
