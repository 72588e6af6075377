import { expect, test } from "bun:test";
import { join } from "node:path";

const MIB = 1024 * 1024;
const ITEMS = process.env["ZAP_TEST_SOAK"] === "1" ? 1_000_000 : 50_000;

test(`${ITEMS.toLocaleString("en")} Ed25519 signatures in one batch take little memory`, async () => {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "million.script.ts"), String(ITEMS)], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  const { wrong, grownBytes } = JSON.parse(await child.stdout.text()) as {
    wrong: number;
    grownBytes: number;
  };
  expect(wrong).toBe(0);
  // 8 MB of answers, slices of at most 32 MiB, and what the runtime lets lie about for a while.
  expect(grownBytes).toBeLessThan(220 * MIB);
}, 300_000);
