import { expect, test } from "bun:test";
import { join } from "node:path";

const MIB = 1024 * 1024;
const SOAK = process.env["ZAP_TEST_SOAK"] === "1";
/** Some 200 MB either way. */
const [ITEMS, EXTRA] = SOAK ? [1_000_000, 200] : [100_000, 2_000];

interface Said {
  readonly right: boolean;
  readonly batchBytes: number;
  readonly grownBytes: number;
  readonly longestMillis: number;
}

test(`a batch of ${ITEMS} items takes little memory and leaves the event loop its turns`, async () => {
  const script = join(import.meta.dir, "pool-large.script.ts");
  const child = Bun.spawn([process.execPath, script, String(ITEMS), String(EXTRA)], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  const said = JSON.parse(await child.stdout.text()) as Said;
  expect(said.right).toBe(true);
  expect(said.batchBytes).toBeGreaterThan(150 * MIB);
  // 8 MiB of slices, and what the runtime lets lie about for a while; a copy of all would be 214.
  expect(said.grownBytes).toBeLessThan(180 * MIB);
  // 10 ms are promised; collecting garbage is not ours to bound.
  expect(said.longestMillis).toBeLessThan(50);
}, 120_000);
