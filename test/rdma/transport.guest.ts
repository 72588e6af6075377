/** The `gpudirect` transport over real verbs, between processes in the guest: over page-locked memory, with no GPU and with a double of one. */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { theNative } from "../support/native.ts";
import { runInGuest } from "./guest/job.ts";
import { rdma } from "./guest/wanted.ts";

/** The first one may have to download. */
const LIMIT = 600_000;
const JOB_MILLIS = 240_000;
/** Two of these, and what runs beside them, are more than the guest's usual memory. */
const MEMORY_MIB = 1_536;
const REGION_BYTES = String(128 * 2 ** 20);

interface Job {
  readonly script: string;
  /** With a CUDA double. */
  readonly gpu?: boolean;
}

async function job(name: string, { script, gpu = false }: Job): Promise<string[]> {
  const { shims, doubles } = theNative();
  const programs = [join(shims, "libzap_gpudirect.so")];
  // The node of a GPU's device is all that the double needs beside itself.
  const device = gpu ? "touch /dev/nvidia0" : "true";
  if (gpu) programs.push(join(shims, "libzap_uma_cuda.so"), join(doubles, "libcuda.so.1"));
  const { output } = await runInGuest({
    name,
    programs,
    script: `set -e\n${device}\n${script}`,
    timeoutMillis: JOB_MILLIS,
    memoryMiB: MEMORY_MIB,
    env: {
      ZAP_LIB_DIR: "/job/bin",
      ZAP_TRANSPORT: "gpudirect",
      ZAP_TRANSPORT_STRICT: "1",
      ZAP_GPUDIRECT_HOST_MEMORY: "1",
      ZAP_GPUDIRECT_GID_INDEX: "0",
      ZAP_GPUDIRECT_REGION_BYTES: REGION_BYTES,
      ...(gpu ? { LD_LIBRARY_PATH: "/job/bin" } : {}),
    },
  });
  return output.trimEnd().split("\n");
}

const play = (scenario: string): string => `bun test/rdma/transport.script.ts ${scenario}`;

describe.skipIf(rdma.skip)(`gpudirect in the guest${rdma.because}`, () => {
  test(
    "two processes gossip the demo, and nothing is lost",
    async () => {
      const lines = await job("demo", { script: "bun scripts/demo.ts --messages 20" });
      expect(lines).toContain("devices: rxe0 and rxe1");
      expect(lines.at(-1)).toMatch(/^delivered 40 messages, [1-9]\d* bytes, 0 lost over gpudirect$/);
    },
    LIMIT,
  );

  test(
    "every size comes and goes, in order and in place",
    async () => {
      const lines = await job("sizes", { script: play("sizes") });
      expect(lines).toEqual(["gpuResident false, page-locked, rxe0", "ok: sizes"]);
    },
    LIMIT,
  );

  test(
    "also into memory that a GPU gave",
    async () => {
      const lines = await job("sizes with a GPU", { script: play("sizes"), gpu: true });
      expect(lines).toEqual(["gpuResident true, page-locked, rxe0", "ok: sizes"]);
    },
    LIMIT,
  );

  test(
    "two peers at once do not get into each other's way",
    async () => {
      expect(await job("peers", { script: play("peers") })).toEqual(["ok: peers"]);
    },
    LIMIT,
  );

  test(
    "a peer that is killed in mid-message is found out, and reached again",
    async () => {
      expect(await job("killed", { script: play("killed") })).toEqual(["ok: killed"]);
    },
    LIMIT,
  );

  test(
    "a port that goes down and comes up again ends the connection, and there is another",
    async () => {
      expect(await job("port", { script: play("port") })).toEqual(["ok: port"]);
    },
    LIMIT,
  );
});
