import { describe, expect, test } from "bun:test";
import { stripVTControlCharacters } from "node:util";
import { Progress, progressLine } from "../../lib/cli/progress.ts";
import { painter } from "../../lib/cli/style.ts";
import { numbered, printable, safeName } from "../../lib/cli/transfer/names.ts";
import { Notices } from "../../lib/cli/transfer/notices.ts";
import { exposure, isLoopback } from "../../lib/cli/transfer/options.ts";
import { bytesText, clockText, rateText, sizeText, timeText } from "../../lib/cli/transfer/units.ts";

const plain = painter({ write: () => true }, {});
const colour = painter({ write: () => true }, { FORCE_COLOR: "1" });
const step = { label: "block-17.bin", done: 45 * 2 ** 20, total: 100 * 2 ** 20, millis: 2_000 };

class Screen {
  text = "";
  readonly isTTY: boolean;
  readonly columns: number | undefined;

  constructor(isTTY: boolean, columns?: number) {
    this.isTTY = isTTY;
    this.columns = columns;
  }

  write(text: string): void {
    this.text += text;
  }
}

describe("the progress line", () => {
  test("shows name, bar, share, sizes, rate and time left", () => {
    expect(progressLine(step, 79, plain)).toBe(
      "block-17.bin ━━━━━━━─────────  45%   45.0 MiB of 100 MiB  22.5 MiB/s  0:02 left",
    );
  });

  test("fits any width, with any name and in colour too", () => {
    const labels = ["a", "block-17.bin", "x".repeat(300), "é漢字".repeat(40), "\u{1f600}".repeat(30)];
    for (const label of labels) {
      for (let width = 8; width < 200; width++) {
        const line = progressLine({ ...step, label }, width, plain);
        expect(Bun.stringWidth(line)).toBeLessThanOrEqual(width);
        expect(stripVTControlCharacters(progressLine({ ...step, label }, width, colour))).toBe(line);
        expect(line).toContain("45%");
      }
    }
  });

  test("keeps both ends of a long name", () => {
    const line = progressLine({ ...step, label: `begin-${"x".repeat(100)}-end.tar` }, 100, plain);
    expect(line).toMatch(/^begin-x+…x+-end\.tar /);
  });

  test("has a bar wherever there is room for one, however long the name", () => {
    for (const label of ["a", "x".repeat(300)]) {
      for (let width = 26; width < 200; width++)
        expect(progressLine({ ...step, label }, width, plain)).toMatch(/ [━─]{10,40} +45%/);
    }
  });

  test("makes sense of nothing, of all, and of more than all", () => {
    expect(progressLine({ ...step, done: 0, millis: 0 }, 79, plain)).toMatch(
      / {3}0% +0 B of 100 MiB +0 B\/s$/,
    );
    expect(progressLine({ ...step, done: step.total }, 79, plain)).toContain(" 100% ");
    expect(progressLine({ ...step, done: step.total * 2 }, 79, plain)).toContain(" 100% ");
    expect(progressLine({ ...step, done: 0, total: 0 }, 79, plain)).toContain(" 100% ");
  });
});

describe("progress", () => {
  test("is for terminals", () => {
    for (const [screen, env] of [
      [new Screen(false), {}],
      [new Screen(true), { TERM: "dumb" }],
    ] as const) {
      const progress = new Progress(screen, env);
      progress.show(step);
      progress.clear();
      expect(screen.text).toBe("");
    }
  });

  test("is one line, drawn over itself, never up to the last column, and taken away at the end", () => {
    const screen = new Screen(true, 60);
    const progress = new Progress(screen, { NO_COLOR: "1" });
    progress.show(step);
    progress.show(step);
    const line = progressLine(step, 59, plain);
    expect(screen.text).toBe(`\r\x1b[K${line}`);
    progress.clear();
    progress.clear();
    expect(screen.text).toBe(`\r\x1b[K${line}\r\x1b[K`);
    progress.show(step);
    expect(screen.text).toBe(`\r\x1b[K${line}\r\x1b[K\r\x1b[K${line}`);
  });

  test("has colour unless NO_COLOR is set", () => {
    const [coloured, uncoloured] = [new Screen(true), new Screen(true)];
    new Progress(coloured, {}).show(step);
    new Progress(uncoloured, { NO_COLOR: "1" }).show(step);
    expect(coloured.text).toContain("\x1b[32m");
    expect(uncoloured.text).not.toContain("m");
  });
});

test("sizes, rates and times", () => {
  expect([0, 1, 1023, 1024, 1536, 20 * 2 ** 20, 999 * 2 ** 20, 2 ** 30, 2 ** 53].map(sizeText)).toEqual([
    ...["0 B", "1 B", "1023 B", "1.0 KiB", "1.5 KiB", "20.0 MiB", "999 MiB", "1.0 GiB", "8.0 PiB"],
  ]);
  expect(sizeText(1000 * 2 ** 20)).toBe("1.0 GiB");
  expect([0, 1, 1234567].map(bytesText)).toEqual(["0 bytes", "1 byte", "1,234,567 bytes"]);
  expect(rateText(2 ** 20, 500)).toBe("2.0 MiB/s");
  expect(rateText(0, 0)).toBe("0 B/s");
  expect([0, 9.94, 9.96, 999, 1000, 9994, 9996, 59_940, 59_960, 185_000].map(timeText)).toEqual([
    ...[
      "0.0 ms",
      "9.9 ms",
      "10 ms",
      "999 ms",
      "1.00 s",
      "9.99 s",
      "10.0 s",
      "59.9 s",
      "1:00 min",
      "3:05 min",
    ],
  ]);
  expect([0, 7_400, 185_000, 3_660_000].map(clockText)).toEqual(["0:00", "0:07", "3:05", "61:00"]);
});

describe("names", () => {
  test("are made safe", () => {
    for (const name of ["..", "../..", "a/../..", "/", "\\", "\0", "\u202e", "...", "   ", "\ufeff"]) {
      const safe = safeName(name);
      expect(safe).not.toMatch(/[/\\\0]/);
      expect(safe.startsWith(".")).toBe(false);
      expect(safe).not.toBe("");
    }
    expect(safeName("x".repeat(190) + "." + "y".repeat(300))).toHaveLength(200);
    expect(safeName("  spaced name.txt ")).toBe("spaced name.txt");
    // The joiners of Persian words and of families stay.
    expect(safeName("\u0645\u06cc\u200c\u062e.txt")).toBe("\u0645\u06cc\u200c\u062e.txt");
  });

  test("are numbered before the extension", () => {
    expect(numbered("a.tar", 1)).toBe("a.tar");
    expect(numbered("a.tar", 2)).toBe("a (2).tar");
    expect(numbered("a", 3)).toBe("a (3)");
    expect(numbered(`a.${"b".repeat(50)}`, 2)).toBe(`a.${"b".repeat(50)} (2)`);
  });

  test("printable text is one short line without control characters", () => {
    expect(printable("a\x1b]0;title\x07\r\n\u2028b")).toBe("a\ufffd]0;title\ufffd\ufffd\ufffd\ufffdb");
    expect(printable("x".repeat(500))).toBe(`${"x".repeat(199)}…`);
    expect(printable("x".repeat(198) + "\u{1f600}y")).toBe(`${"x".repeat(198)}\ufffd…`);
  });
});

test("notices are held down, and those left out are counted", () => {
  const lines: string[] = [];
  const notices = new Notices((line) => lines.push(line));
  for (let i = 0; i < 1_000; i++) notices.say(`${i}\n`);
  expect(lines).toEqual(["0\n", "1\n", "2\n", "3\n", "4\n", "5\n", "6\n", "7\n", "8\n", "9\n"]);
});

test("which addresses only this host can reach", () => {
  const inside = ["127.0.0.1:1", "127.1.2.3:9", "[::1]:1", "localhost:80", " LOCALHOST:80 ", "unix:/tmp/x"];
  const outside = ["0.0.0.0:1", ":1", "[::]:1", "192.0.2.7:1", "127.0.0.1.example.org:1", "host:1"];
  expect(inside.map(isLoopback)).toEqual(inside.map(() => true));
  expect(outside.map(isLoopback)).toEqual(outside.map(() => false));
  const tls = { "tls-cert": "a", "tls-key": "b", "tls-ca": "c" };
  expect(exposure("0.0.0.0:1", {}, "beware")).toBe("warning: no TLS on 0.0.0.0:1: beware");
  expect(exposure("0.0.0.0:1", tls, "beware")).toBeNull();
  expect(exposure("[::1]:1", {}, "beware")).toBeNull();
});
