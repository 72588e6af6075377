/** The gpudirect shim on this host, against the libibverbs double: what runs on soft-RoCE in test/rdma, and every failure that a device can have. */
import { afterAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import {
  ADDRESS,
  COMPILER,
  finish,
  IN_CI,
  PLAIN,
  ROOT,
  gpudirectSources,
  THREAD,
  Workshop,
} from "./toolchain.ts";

const LINUX = process.platform === "linux";
const missing = !LINUX ? "not Linux" : COMPILER === null ? "no C compiler here" : "";
/** In CI everything must run. */
const skip = missing !== "" && !(IN_CI && LINUX);

const LIMIT = 300_000;
const SHIM = gpudirectSources();
const DOUBLE = ["ibverbs", "double", "double_memory"].map((name) => join(ROOT, "test/doubles", `${name}.c`));
const OLD = "-DIBVERBS_DOUBLE_OLD";

const shop = new Workshop();
afterAll(() => shop[Symbol.dispose]());

interface Built {
  readonly node: string;
  readonly faults: string;
  readonly rules: string;
  readonly library: string;
  readonly old: string;
}

async function build(kind: string, flags: readonly string[]): Promise<Built> {
  const shim = await shop.objects(kind, SHIM, flags);
  const program = (name: string, source: string) =>
    // The double asks the program itself what lies behind a GPU's memory.
    shop.link(`${kind}-${name}`, [join(ROOT, source), ...shim], [...flags, "-rdynamic"]);
  return {
    node: await program("node", "test/rdma/node.c"),
    faults: await program("faults", "test/native/gpudirect_faults.c"),
    rules: await program("rules", "test/native/gpudirect_rules.c"),
    library: await shop.link(`${kind}-libibverbs.so.1`, DOUBLE, [...flags, "-shared"]),
    old: await shop.link(`${kind}-libibverbs-old.so.1`, DOUBLE, [...flags, "-shared", OLD]),
  };
}

async function passes(name: string, words: readonly string[], env: Record<string, string> = {}) {
  const { code, output } = await finish(words, env);
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining(`${name}: ok\n`) });
}

const KINDS = [
  ["plain", PLAIN],
  ["address", ADDRESS],
  ["thread", THREAD],
] as const;

const plain = () => built.get("plain")!;
const built = new Map<string, Promise<Built>>();

describe.skipIf(skip)(`the gpudirect shim over a double${skip ? ` (skipped: ${missing})` : ""}`, () => {
  for (const [kind, flags] of KINDS) {
    describe(kind === "plain" ? "as it is" : `under the ${kind} sanitizer`, () => {
      const parts = skip ? null : build(kind, flags);
      parts?.catch(() => {});
      if (parts) built.set(kind, parts);

      test(
        "the double keeps to the rules of queue pairs, memory and windows",
        async () => {
          const { rules, library } = await parts!;
          await passes("rules", [rules, library]);
        },
        LIMIT,
      );

      test(
        "two nodes exchange messages of all sizes, with memory windows and with registrations",
        async () => {
          const { node, library } = await parts!;
          const run = (windows: boolean) =>
            passes("node", [node, library, "double0", "double1", "-1", windows ? "0" : "2"]);
          await Promise.all([run(true), run(false)]);
        },
        LIMIT,
      );

      // The sanitizers see all that this would, and more.
      if (kind === "plain") return;
      test(
        "of everything that fails the caller learns, once, and what a driver does not let go of stays until it does",
        async () => {
          const { faults, library, old } = await parts!;
          await Promise.all([
            passes("faults", [faults, library, old]),
            // What stays is a leak, and meant to be one.
            passes("stuck", [faults, library, old, "stuck"], { ASAN_OPTIONS: "detect_leaks=0" }),
          ]);
        },
        LIMIT,
      );
    });
  }

  test(
    "the environment sets the double as well, all of it or one of its devices",
    async () => {
      const { node, library } = await plain();
      const says = async (name: string, value: string, text: string) => {
        const words = [node, library, "double0", "double1", "-1", "0"];
        const { code, output } = await finish(words, { [`ZAP_DOUBLE_IBVERBS_${name}`]: value });
        expect({ code, output }).toEqual({ code: 1, output: expect.stringContaining(text) });
      };
      await says("DEVICES", "0", "no RDMA device: ");
      await says(
        "FAIL",
        "ibv_create_cq=5,ibv_alloc_pd=12@1",
        "ibv_alloc_pd of double0 failed with ENOMEM (12)",
      );
      await says("DOUBLE1_PORT_STATE", "1", "double1 has no active port: port 1 is down (Ethernet)");
    },
    LIMIT,
  );
});
