/**
 * The dpdk transport and an ordinary UDP socket that speaks docs/wire-dpdk.md by hand: what any host can do, and what a hostile one may
 * try. Each scenario has a process and a network namespace of its own, gone with it; that needs root.
 */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { MemifPair, noDpdk, whyNoDpdk } from "../support/dpdk.ts";
import { SCENARIOS } from "./dpdk-socket-scenarios.ts";

const LIMIT = 60_000;
const PATH = `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`;
const missing = ["unshare", "ip", "ethtool"].filter((name) => Bun.which(name, { PATH }) === null);
const lacks = [
  ...(process.getuid?.() === 0 ? [] : ["not root"]),
  ...(missing.length > 0 ? [`no ${missing.join(", ")} here`] : []),
].join(" and ");
// In CI everything must run.
const skip = noDpdk || (lacks !== "" && !process.env["CI"]);
const because = whyNoDpdk || (skip ? ` (skipped: ${lacks})` : "");

describe.skipIf(skip)(`an ordinary socket that meets the dpdk transport${because}`, () => {
  test.each(Object.keys(SCENARIOS))(
    "%s",
    async (scenario) => {
      using pair = new MemifPair();
      const { ZAP_LIB_DIR = "" } = pair.server;
      const words = ["unshare", "--net", process.execPath, join(import.meta.dir, "dpdk-socket.script.ts")];
      const child = Bun.spawn([...words, scenario], {
        env: { ...process.env, PATH, ZAP_LIB_DIR },
        stdin: "ignore",
        stdout: "pipe",
        stderr: "pipe",
        timeout: LIMIT - 5_000,
      });
      const [said, complained] = await Promise.all([child.stdout.text(), child.stderr.text()]);
      expect({ code: await child.exited, said, complained }).toEqual({
        code: 0,
        said: "ok\n",
        complained: "",
      });
    },
    LIMIT,
  );
});
