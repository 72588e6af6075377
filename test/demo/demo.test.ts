import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dpdkShims, noDpdk, whyNoDpdk } from "../support/dpdk.ts";
import { until, within } from "../support/wait.ts";

const SCRIPT = join(import.meta.dir, "..", "..", "scripts", "demo.ts");
const DEMO = [process.execPath, SCRIPT];

function start(command: string[], env: Record<string, string> = {}, cwd = tmpdir()) {
  const { PATH = "", HOME = "" } = process.env;
  return Bun.spawn(command, {
    env: { PATH, HOME, ...env },
    cwd,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
}

async function run(command: string[], env: Record<string, string> = {}, cwd?: string) {
  const child = start(command, env, cwd);
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code: await child.exited, lines: stdout.split("\n"), stderr };
}

function expectDelivery(lines: readonly string[], messages: number, transport = "default"): void {
  const last = lines.at(-2) ?? "";
  expect(last).toMatch(
    new RegExp(`^delivered ${messages} messages, [1-9]\\d* bytes, 0 lost over ${transport}$`),
  );
  expect(lines.at(-1)).toBe("");
  expect(lines.filter((line) => line.startsWith("delivered"))).toHaveLength(1);
}

describe("the demo", () => {
  test("delivers 1,000 messages each way and ends with the line", async () => {
    const { code, lines, stderr } = await run(DEMO);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(lines[0]).toBe("demo: two processes, 1,000 messages each way, 64 bytes to 4 MiB, seed 1");
    expect(lines.length).toBeLessThan(15);
    expectDelivery(lines, 2_000);
  }, 60_000);

  test("takes a number of messages and a seed, on which sizes and contents depend", async () => {
    const few = ["--messages", "20", "--seed"];
    const [one, again, other] = await Promise.all([
      run([...DEMO, ...few, "7"]),
      run([...DEMO, ...few, "7"]),
      run([...DEMO, ...few, "8"]),
    ]);
    for (const { code, lines } of [one, again, other]) {
      expect(code).toBe(0);
      expectDelivery(lines, 40);
    }
    expect(one.lines.at(-2)).toBe(again.lines.at(-2) ?? "");
    expect(one.lines.at(-2)).not.toBe(other.lines.at(-2) ?? "");
  }, 60_000);

  test("says which transport it was asked for and which it took", async () => {
    const { code, lines } = await run([...DEMO, "--messages", "2"], { ZAP_TRANSPORT: "gpudirect" });
    expect(code).toBe(0);
    expect(lines[1]).toStartWith("transport: default (gpudirect was asked for by ZAP_TRANSPORT, but ");
    expectDelivery(lines, 4);
  }, 60_000);

  test.skipIf(noDpdk)(
    `delivers the same over dpdk, on software devices of its own${whyNoDpdk}`,
    async () => {
      const env = { ZAP_TRANSPORT: "dpdk", ZAP_DPDK_HUGEPAGES: "0", ZAP_LIB_DIR: dpdkShims() };
      const { code, lines, stderr } = await run([...DEMO, "--messages", "300"], env);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(lines[1]).toStartWith("devices: net_memif0 at 10.0.0.1 and net_memif1 at 10.0.0.2");
      expectDelivery(lines, 600, "dpdk");
    },
    60_000,
  );

  test("fails where the transport cannot be had", async () => {
    const { code, lines, stderr } = await run(DEMO, { ZAP_TRANSPORT: "pigeon" });
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
    expect(lines.join("\n")).toContain('fault: no transport is named "pigeon"');
    expect(lines.at(-2)).toBe("delivered 0 messages, 0 bytes, 2000 lost over no transport");
  }, 60_000);

  test("fails, says what was lost and leaves nobody behind when one of the two is killed", async () => {
    const child = start([...DEMO, "--messages", "20000"]);
    const pids = await childrenOf(child.pid);
    process.kill(pids[1] ?? 0, "SIGKILL");
    const stdout = await new Response(child.stdout).text();
    expect(await child.exited).toBe(1);
    expect(stdout).toMatch(/^fault: (left|right) ended early, with exit status 137$/m);
    expect(stdout).toMatch(/^fault: (left to right|right to left): \d+ messages? (did not come|not sent): /m);
    expect(stdout).toMatch(/\ndelivered \d+ messages, \d+ bytes, [1-9]\d* lost over default\n$/);
    for (const pid of pids) expect(isAlive(pid)).toBe(false);
  }, 60_000);

  test("its two processes do not outlive it", async () => {
    const child = start([...DEMO, "--messages", "20000"]);
    const pids = await childrenOf(child.pid);
    child.kill("SIGKILL");
    await until(() => !pids.some(isAlive), "the end of both", 15_000);
  }, 60_000);

  test("--help, and wrong options", async () => {
    const help = await run([...DEMO, "--help"]);
    expect({ code: help.code, stderr: help.stderr }).toEqual({ code: 0, stderr: "" });
    expect(help.lines[0]).toBe("Usage: bun run demo [--messages N] [--seed N]");
    for (const argv of [["--bogus"], ["extra"], ["--messages", "0"], ["--messages", "x"], ["--seed", "-1"]]) {
      const { code, stderr } = await run([...DEMO, ...argv]);
      expect(code).toBe(2);
      expect(stderr).toContain("Usage: bun run demo");
    }
  }, 30_000);
});

test("compiled, it is one executable that does the same, wherever it lies", async () => {
  const folder = mkdtempSync(join(tmpdir(), "zap-demo-"));
  try {
    const program = join(folder, "a name with blanks");
    const build = await run(
      [process.execPath, "build", "--compile", SCRIPT, "--outfile", program],
      {},
      folder,
    );
    expect(build.code).toBe(0);
    const { code, lines, stderr } = await run([program, "--messages", "200"], {}, folder);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expectDelivery(lines, 400);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}, 120_000);

/** The two processes of a demo, as soon as both are there and at work. */
async function childrenOf(pid: number): Promise<number[]> {
  let pids: number[] = [];
  const find = (): boolean => {
    const { stdout } = Bun.spawnSync(["ps", "-A", "-o", "pid=,ppid="]);
    const rows = stdout
      .toString()
      .trim()
      .split("\n")
      .map((row) => row.trim().split(/\s+/).map(Number));
    pids = rows.flatMap(([child = 0, parent]) => (parent === pid ? [child] : []));
    return pids.length === 2;
  };
  await until(find, "two processes", 10_000);
  await within(Bun.sleep(300), "a moment of work");
  return pids;
}

/** A process that has ended and that nobody has asked about yet still has a number. */
function isAlive(pid: number): boolean {
  const { stdout } = Bun.spawnSync(["ps", "-o", "stat=", "-p", String(pid)]);
  const state = stdout.toString().trim();
  return state !== "" && !state.startsWith("Z");
}
