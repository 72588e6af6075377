/** Compares what one process says it sent with what the other says it got. */

/** Size and SHA-256 in hex of one message's contents; their places in the list are the sequence numbers. */
export type Sent = [bytes: number, hash: string];
/** One message as it came: sequence number, size, SHA-256, and whether the message said the same of itself. */
export type Received = [sequence: number, bytes: number, hash: string, intact: boolean];

const RANGES_SHOWN_MAX = 10;

export interface Verdict {
  /** Messages that came once, whole. */
  readonly delivered: number;
  /** Their contents. */
  readonly bytes: number;
  /** Messages that did not come, or not as they were sent. */
  readonly lost: number;
  /** Everything that is wrong, one line for each kind. Empty where all is well. */
  readonly faults: readonly string[];
}

/** `way` names the direction, `planned` is how many messages were to go. */
export function judge(
  way: string,
  planned: number,
  sent: readonly Sent[],
  received: readonly Received[],
): Verdict {
  const faults = new Faults();
  const first = new Map<number, Received>();
  let last = -1;
  for (const message of received) {
    const [sequence] = message;
    if (first.has(sequence)) faults.add("came more than once", sequence);
    else first.set(sequence, message);
    if (sequence < last) faults.add("came too late, out of order", sequence);
    if (sequence >= planned) faults.add("came and was never to be sent", sequence);
    last = Math.max(last, sequence);
  }

  let [delivered, bytes] = [0, 0];
  for (let sequence = 0; sequence < planned; sequence++) {
    const message = first.get(sequence);
    const fault = difference(sent[sequence], message);
    if (fault !== null) faults.add(fault, sequence);
    else {
      delivered++;
      bytes += message?.[1] ?? 0;
    }
  }
  return { delivered, bytes, lost: planned - delivered, faults: faults.lines(way) };
}

function difference(origin: Sent | undefined, message: Received | undefined): string | null {
  if (origin === undefined) return "not sent";
  if (message === undefined) return "did not come";
  const [bytes, hash] = origin;
  const [, bytesHere, hashHere, intact] = message;
  if (bytesHere !== bytes) return "came with another size";
  return intact && hashHere === hash ? null : "came with another SHA-256";
}

/** Message numbers by what is wrong with them. */
class Faults {
  private readonly numbers = new Map<string, number[]>();

  add(fault: string, sequence: number): void {
    const known = this.numbers.get(fault);
    if (known === undefined) this.numbers.set(fault, [sequence]);
    else known.push(sequence);
  }

  lines(way: string): string[] {
    return [...this.numbers].map(([fault, numbers]) => {
      const what = numbers.length === 1 ? "1 message" : `${numbers.length} messages`;
      return `${way}: ${what} ${fault}: ${rangesText(numbers)}`;
    });
  }
}

/** For example `0, 4 to 9, 17`. */
function rangesText(numbers: readonly number[]): string {
  const ranges: [from: number, to: number][] = [];
  for (const number of numbers) {
    const range = ranges.at(-1);
    if (range !== undefined && number === range[1] + 1) range[1] = number;
    else ranges.push([number, number]);
  }
  const texts = ranges.map(([from, to]) => (from === to ? String(from) : `${from} to ${to}`));
  if (texts.length > RANGES_SHOWN_MAX) texts.splice(RANGES_SHOWN_MAX, Infinity, "...");
  return texts.join(", ");
}
