/** What a person sees of the demo. */
import type { Wishes } from "./node.ts";
import type { Verdict } from "./verdict.ts";

export class Display {
  private readonly total: number;
  private shown = 0;

  constructor({ messages, seed }: Wishes) {
    this.total = messages * 2;
    line(`demo: two processes, ${count(messages)} messages each way, 64 bytes to 4 MiB, seed ${seed}`);
  }

  devices(text: string): void {
    if (text !== "") line(text);
  }

  opened(transport: string, reason: string): void {
    line(`transport: ${transport} (${reason})`);
  }

  progress(received: number, bytes: number): void {
    const quarter = Math.floor((received / this.total) * 4);
    if (quarter <= this.shown) return;
    this.shown = quarter;
    const mebibytes = (bytes / 2 ** 20).toFixed(0);
    line(`${String(quarter * 25).padStart(4)}%  ${count(received)} messages, ${mebibytes} MiB`);
  }

  /** Prints the verdict, its line last, and returns the exit status. */
  verdict(
    verdicts: readonly Verdict[],
    faults: readonly string[],
    transport: string,
    seconds: number,
  ): number {
    const sum = (of: (each: Verdict) => number): number => verdicts.reduce((all, each) => all + of(each), 0);
    const [delivered, bytes, lost] = [
      sum((each) => each.delivered),
      sum((each) => each.bytes),
      sum((each) => each.lost),
    ];
    const wrong = [...faults, ...verdicts.flatMap((each) => each.faults)];
    for (const each of wrong) line(`fault: ${each}`);
    if (wrong.length === 0) {
      const rate = (bytes / 2 ** 20 / seconds).toFixed(0);
      line(
        `checked: order, size and SHA-256 of each; ${seconds.toFixed(1)} s, ${rate} MiB/s both ways together`,
      );
    }
    line(`delivered ${delivered} messages, ${bytes} bytes, ${lost} lost over ${transport}`);
    return wrong.length === 0 && lost === 0 ? 0 : 1;
  }
}

function line(text: string): void {
  process.stdout.write(`${text}\n`);
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}
