/** After `close()` nothing of a transport keeps its process alive. */
import { expect, test } from "bun:test";
import { join } from "node:path";

const STATES = [
  "nothing going on",
  "a spare connection",
  "a connect that was told of another connection",
  "a connect that was told of another connection and then aborted",
  "a connect that is not answered, and a peer held for its sake",
  "a configured peer that is not there, and sends that wait for it",
];

test.concurrent.each(STATES)(
  "a process that closes its transport ends by itself, with %s",
  async (state) => {
    // Killed after far less than any limit of the transport; then there is no exit code.
    const child = Bun.spawn([process.execPath, join(import.meta.dir, "exit.script.ts"), state], {
      env: { ...process.env, ZAP_TRANSPORT_QUIET: "1" },
      stdout: "pipe",
      stderr: "pipe",
      timeout: 4_000,
    });
    const [said, complained, code] = await Promise.all([
      child.stdout.text(),
      child.stderr.text(),
      child.exited,
    ]);
    expect([said, complained, code]).toEqual(["closed\n", "", 0]);
  },
  8_000,
);
