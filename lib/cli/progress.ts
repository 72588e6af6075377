/** A progress line on a terminal: drawn over itself, at most ten times a second. Without a terminal there is none. */
import { painter, type Paint } from "./style.ts";
import type { Screen } from "./transfer/io.ts";
import { clockText, rateText, sizeText } from "./transfer/units.ts";

const FRAME_MILLIS = 100;
const WIDTH_DEFAULT = 80;
const LABEL_WIDTH_MIN = 10;
const LABEL_WIDTH_MAX = 28;
const BAR_WIDTH_MIN = 10;
const BAR_WIDTH_MAX = 40;
/** Wide enough for any size and rate, so that nothing moves about. */
const SIZES_WIDTH = 20;
const RATE_WIDTH = 10;
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

/**
 * One line of at most `width` columns: name, bar, share, sizes, rate, time left. Where there is little room, the name is cut
 * first, then what stands at the end is left out, then the bar.
 */
export function progressLine({ label, done, total, millis }: Step, width: number, paint: Paint): string {
  const share = total === 0 ? 1 : Math.min(done / total, 1);
  const facts = [
    `${sizeText(done)} of ${sizeText(total)}`.padStart(SIZES_WIDTH),
    rateText(done, millis).padStart(RATE_WIDTH),
  ];
  if (millis >= GUESS_MILLIS_MIN && done > 0)
    facts.push(`${clockText((millis / done) * (total - done))} left`);
  const percent = ` ${Math.floor(share * 100)}%`.padStart(5);
  const room = (): number => width - percent.length - facts.reduce((all, each) => all + 2 + each.length, 0);
  while (facts.length > 0 && room() < LABEL_WIDTH_MIN + 1 + BAR_WIDTH_MIN) facts.pop();
  const withBar = room() >= LABEL_WIDTH_MIN + 1 + BAR_WIDTH_MIN;
  const labelRoom = withBar ? room() - 1 - BAR_WIDTH_MIN : room();
  const name = truncate(label, Math.max(1, Math.min(LABEL_WIDTH_MAX, labelRoom)));
  const barWidth = withBar ? Math.min(BAR_WIDTH_MAX, room() - 1 - Bun.stringWidth(name)) : 0;
  return `${name}${withBar ? ` ${bar(share, barWidth, paint)}` : ""}${percent}${facts.map((each) => `  ${each}`).join("")}`;
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
