import { expect, test } from "bun:test";
import { join } from "node:path";

async function run(how: string) {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "pool-exit.script.ts"), how], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
    timeout: 20_000,
    killSignal: "SIGKILL",
  });
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  return { code: await child.exited, stdout: stdout.trim(), stderr };
}

test("a process ends by itself once its batches are done", async () => {
  expect(await run("done")).toEqual({ code: 0, stdout: "right", stderr: "" });
});

test("a process ends by itself once its batch is aborted", async () => {
  expect(await run("aborted")).toEqual({ code: 0, stdout: "AbortError", stderr: "" });
});

test("a process may exit in the middle of a batch", async () => {
  expect(await run("exit")).toEqual({ code: 5, stdout: "leaving", stderr: "" });
});
