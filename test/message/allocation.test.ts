/** What allocates and what does not, told by the collector's own log. */
import { expect, test } from "bun:test";
import { join } from "node:path";

/** The bytes that the collector says were allocated while `what` was done a million times, to about 8 MiB. */
async function allocated(what: string): Promise<number> {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "allocation.script.ts"), what], {
    env: { ...process.env, BUN_JSC_logGC: "1" },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [log, code] = await Promise.all([child.stderr.text(), child.exited]);
  expect(code).toBe(0);
  const between = /<<<([^]*)>>>/.exec(log)?.[1];
  expect(between).toBeDefined();
  let bytes = 0;
  for (const [, cycle] of between!.matchAll(/bytes allocated this cycle: (\d+)/g)) bytes += Number(cycle);
  return bytes;
}

test.each(["objects", "bigints"])("the log tells of %s", async (what) => {
  expect(await allocated(what)).toBeGreaterThan(16_000_000);
});

test.each([
  ["header checks", "header"],
  ["reads of every scalar type but the 64-bit integers", "scalars"],
  ["reads of list elements", "elements"],
  ["reads of what is not there", "nulls"],
])("a million %s allocate nothing", async (_name, what) => {
  expect(await allocated(what)).toBe(0);
});

test("parse allocates one small view", async () => {
  const bytes = await allocated("parse");
  expect(bytes / 1_000_000).toBeLessThan(100);
});
