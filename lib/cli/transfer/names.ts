/** What to make of a file name that came over the network: nothing in it is trusted. */

/** Room for " (9999)" and a file system's own limit of 255 bytes. */
const NAME_BYTES_MAX = 200;
const EXTENSION_BYTES_MAX = 20;
const UNNAMED = "unnamed";

/**
 * Control and format characters, which rule a terminal or hide what a name really is. The two joiners stay: scripts such as
 * Persian and many emoji are written with them.
 */
const UNSEEN = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/**
 * A name to save a file under, directly inside the folder: the last part of the path, control characters as `_`, no dot at its
 * start (a hidden file may be one that a shell obeys), at most 200 bytes, never empty.
 */
export function safeName(name: string): string {
  const last = name.split(/[/\\]/).findLast((part) => part !== "") ?? "";
  const seen = last
    .replace(UNSEEN, "_")
    .trim()
    .replace(/^\.+/, (dots) => "_".repeat(dots.length));
  return /^_*$/.test(seen) ? UNNAMED : shorten(seen);
}

/** `name` for the first try, then `name (2)`, `name (3)`, always before the extension. */
export function numbered(name: string, attempt: number): string {
  if (attempt === 1) return name;
  const { stem, extension } = split(name);
  return `${stem} (${attempt})${extension}`;
}

/** Text from the network for a terminal: one line, no control characters, at most `max` characters. */
export function printable(text: string, max = 200): string {
  const clean = text.slice(0, max + 1).replace(UNSEEN, "\ufffd");
  return clean.length > max ? `${clean.slice(0, max - 1).toWellFormed()}…` : clean;
}

function split(name: string): { stem: string; extension: string } {
  const dot = name.lastIndexOf(".");
  if (dot <= 0 || Buffer.byteLength(name.slice(dot)) > EXTENSION_BYTES_MAX)
    return { stem: name, extension: "" };
  return { stem: name.slice(0, dot), extension: name.slice(dot) };
}

function shorten(name: string): string {
  if (Buffer.byteLength(name) <= NAME_BYTES_MAX) return name;
  const { stem, extension } = split(name);
  let room = NAME_BYTES_MAX - Buffer.byteLength(extension);
  let kept = "";
  for (const char of stem) {
    room -= Buffer.byteLength(char);
    if (room < 0) break;
    kept += char;
  }
  return kept + extension;
}
