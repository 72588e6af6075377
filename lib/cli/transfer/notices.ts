/** Lines that strangers can cause: no more than a few a second, so that nobody can flood a terminal or a log. */
const LINES_PER_SECOND_MAX = 10;

export class Notices {
  private readonly write: (line: string) => unknown;
  private windowAt = -Infinity;
  private lines = 0;
  private leftOut = 0;

  constructor(write: (line: string) => unknown) {
    this.write = write;
  }

  say(line: string): void {
    const now = performance.now();
    if (now - this.windowAt >= 1000) {
      this.windowAt = now;
      this.lines = 0;
      if (this.leftOut > 0) this.write(`zap: ${this.leftOut} more such lines were left out\n`);
      this.leftOut = 0;
    }
    if (++this.lines <= LINES_PER_SECOND_MAX) this.write(line);
    else this.leftOut++;
  }
}
