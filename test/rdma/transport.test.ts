/**
 * The `gpudirect` transport over real verbs, between processes in the guest: over page-locked memory, with no GPU and with a double of one. One
 * boot plays all scenarios; each test looks at one.
 */
import { beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { theNative } from "../support/native.ts";
import { runInGuest } from "./guest/job.ts";
import { rdma } from "./guest/wanted.ts";

/** The first one may have to download. */
const LIMIT = 900_000;
const JOB_MILLIS = 540_000;
/** Three of these, and what runs beside them, are more than the guest's usual memory. */
const MEMORY_MIB = 1_536;
const REGION_BYTES = String(128 * 2 ** 20);
const SCENARIO = "bun test/rdma/transport/run.ts";

const COMMANDS = {
  demo: "bun scripts/demo.ts --messages 20",
  sizes: `${SCENARIO} sizes`,
  many: `${SCENARIO} many`,
  peers: `${SCENARIO} peers`,
  killed: `${SCENARIO} killed`,
  port: `${SCENARIO} port`,
  lossy: `${SCENARIO} lossy`,
  info: "ZAP_TRANSPORT= bun lib/cli/zap-info.ts",
  // The node of a GPU's device is all that the double needs beside itself.
  gpu: `touch /dev/nvidia0 && LD_LIBRARY_PATH=/job/bin ${SCENARIO} sizes`,
} as const;

type Name = keyof typeof COMMANDS;

/** Every scenario with a mark before and its exit status behind; one that fails does not keep the others from being played. */
const SCRIPT = Object.entries(COMMANDS)
  .map(([name, command]) => `echo "=== ${name}"\n(${command}) </dev/null 2>&1\necho "=== exit $?"\n`)
  .join("");

function readScenarios(output: string): Map<string, string[]> {
  const scenarios = new Map<string, string[]>();
  for (const part of output.split(/^=== /m).slice(1)) {
    const [name = "", ...lines] = part.trimEnd().split("\n");
    if (name.startsWith("exit ")) [...scenarios.values()].at(-1)!.push(name);
    else scenarios.set(name, lines);
  }
  return scenarios;
}

describe.skipIf(rdma.skip)(`gpudirect in the guest${rdma.because}`, () => {
  let played = new Map<string, string[]>();

  beforeAll(async () => {
    const { shims, doubles } = theNative();
    const libraries = ["libzap_gpudirect.so", "libzap_uma_cuda.so"].map((name) => join(shims, name));
    const { output } = await runInGuest({
      name: "gpudirect",
      programs: [...libraries, join(doubles, "libcuda.so.1")],
      script: SCRIPT,
      timeoutMillis: JOB_MILLIS,
      memoryMiB: MEMORY_MIB,
      env: {
        NO_COLOR: "1",
        ZAP_LIB_DIR: "/job/bin",
        ZAP_TRANSPORT: "gpudirect",
        ZAP_TRANSPORT_STRICT: "1",
        ZAP_GPUDIRECT_HOST_MEMORY: "1",
        ZAP_GPUDIRECT_GID_INDEX: "0",
        ZAP_GPUDIRECT_REGION_BYTES: REGION_BYTES,
      },
    });
    played = readScenarios(output);
  }, LIMIT);

  const lines = (name: Name): string[] => played.get(name) ?? [];

  test("two processes gossip the demo, and nothing is lost", () => {
    // In one text, so that a failure shows all of it.
    expect(lines("demo").join("\n")).toMatch(
      /^devices: rxe0 and rxe1$[^]*^delivered 40 messages, [1-9]\d* bytes, 0 lost over gpudirect\nexit 0$/m,
    );
  });

  test("every size comes and goes, in order and in place", () => {
    expect(lines("sizes")).toEqual(["gpuResident false, host, rxe0", "ok: sizes", "exit 0"]);
  });

  test("also into page-locked memory that a GPU gave", () => {
    expect(lines("gpu")).toEqual(["gpuResident true, page-locked, rxe0", "ok: sizes", "exit 0"]);
  });

  test("10,000 messages of every class up to 16 MiB go each way at the same time", () => {
    expect(lines("many")).toEqual(["ok: many", "exit 0"]);
  });

  test("two peers at once do not get into each other's way", () => {
    expect(lines("peers")).toEqual(["ok: peers", "exit 0"]);
  });

  test("a peer that is killed in mid-message is found out, and reached again", () => {
    expect(lines("killed")).toEqual(["ok: killed", "exit 0"]);
  });

  test("a port that goes down and comes up again ends the connection, and there is another", () => {
    expect(lines("port")).toEqual(["ok: port", "exit 0"]);
  });

  test("a link that loses and delays packets costs time and no message", () => {
    expect(lines("lossy")).toEqual(["ok: lossy", "exit 0"]);
  });

  test("zap-info shows the device and what it is used with", () => {
    expect(lines("info").join("\n")).toMatch(/gpudirect .*rxe0/);
    expect(lines("info").at(-1)).toBe("exit 0");
  });
});
