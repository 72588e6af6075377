/** A progress line on a terminal: drawn over itself, at most ten times a second. Without a terminal there is none. */
import { painter, type Paint } from "./style.ts";
import type { Screen } from "./transfer/io.ts";
import { clockText, rateText, sizeText } from "./transfer/units.ts";

const FRAME_MILLIS = 100;
const WIDTH_DEFAULT = 80;
const LABEL_WIDTH_MAX = 28;
/** A time left that is guessed from less than this is no use to anybody. */
const GUESS_MILLIS_MIN = 1_000;
const BACK_AND_ERASE = "\r\x1b[K";

/** How far something has come. */
export interface Step {
  /** What it is; printable. */
  readonly label: string;
  /** Bytes. */
  readonly done: number;
  readonly total: number;
  /** Since it began. */
  readonly millis: number;
}

export class Progress {
  readonly enabled: boolean;
  private readonly output: Screen;
  private readonly paint: Paint;
  private drawnAt = -Infinity;
  private visible = false;

  constructor(output: Screen, env: Readonly<Record<string, string | undefined>>) {
    this.output = output;
    this.enabled = output.isTTY === true && env["TERM"] !== "dumb";
    this.paint = painter(output, env);
  }

  show(step: Step): void {
    if (!this.enabled) return;
    const now = performance.now();
    if (now - this.drawnAt < FRAME_MILLIS) return;
    this.drawnAt = now;
    this.visible = true;
    // The last column stays free: some terminals break the line when it is written to.
    const width = (this.output.columns || WIDTH_DEFAULT) - 1;
    this.output.write(BACK_AND_ERASE + progressLine(step, width, this.paint));
  }

  /** Takes the line away, so that other text can be written; the next `show` draws it again. */
  clear(): void {
    if (!this.visible) return;
    this.visible = false;
    this.drawnAt = -Infinity;
    this.output.write(BACK_AND_ERASE);
  }
}

/** One line of at most `width` columns: name, bar, share, bytes, rate, time left. What does not fit is left out, last first. */
export function progressLine({ label, done, total, millis }: Step, width: number, paint: Paint): string {
  const share = total === 0 ? 1 : Math.min(done / total, 1);
  const percent = `${Math.floor(share * 100)}%`.padStart(4);
  const name = truncate(label, Math.max(1, Math.min(LABEL_WIDTH_MAX, width - percent.length - 1)));
  let line = `${name} ${percent}`;
  let used = Bun.stringWidth(line);
  const add = (text: string): void => {
    if (used + 2 + Bun.stringWidth(text) > width) return;
    line += `  ${text}`;
    used += 2 + Bun.stringWidth(text);
  };
  add(`${sizeText(done)} of ${sizeText(total)}`.padStart(20));
  add(rateText(done, millis).padStart(10));
  if (millis >= GUESS_MILLIS_MIN && done > 0) add(`${clockText((millis / done) * (total - done))} left`);
  const room = width - used - 1;
  if (room < 5) return line;
  const [before, after] = [line.slice(0, name.length), line.slice(name.length)];
  return `${before} ${bar(share, Math.min(room, 40), paint)}${after}`;
}

function bar(share: number, width: number, paint: Paint): string {
  const filled = Math.round(share * width);
  return paint("green", "━".repeat(filled)) + paint("dim", "─".repeat(width - filled));
}

/** Keeps both ends of a text: in a file name, the end tells most. */
function truncate(text: string, width: number): string {
  if (Bun.stringWidth(text) <= width) return text;
  const chars = [...text];
  let [head, tail] = ["", ""];
  let room = width - 1;
  for (let at = 0; at < chars.length; at++) {
    const fromEnd = at % 2 === 1;
    const char = (fromEnd ? chars[chars.length - 1 - (at >> 1)] : chars[at >> 1]) ?? "";
    room -= Bun.stringWidth(char);
    if (room < 0) break;
    if (fromEnd) tail = char + tail;
    else head += char;
  }
  return `${head}…${tail}`;
}
