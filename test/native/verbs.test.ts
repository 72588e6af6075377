/** libibverbs by an ABI of our own writing: that it is the real one, and what the device part takes and says. No RDMA is needed. */
import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ADDRESS, COMPILER, finish, IN_CI, PLAIN, ROOT, sources, Workshop } from "./toolchain.ts";

const LINUX = process.platform === "linux";
const HEADER = "/usr/include/infiniband/verbs.h";
const LIBRARY =
  ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
    .map((folder) => join(folder, "libibverbs.so.1"))
    .find((path) => existsSync(path)) ?? null;
const folderIsEmpty = (path: string) => !existsSync(path) || readdirSync(path).length === 0;
const NO_RDMA = folderIsEmpty("/sys/class/infiniband") && !existsSync("/sys/class/infiniband_verbs");

/** In CI everything must run; the name of a test says why it was skipped elsewhere. */
const without = (...missing: readonly (string | false)[]) => {
  const words = missing.filter((word) => word !== false);
  const skip = words.length > 0 && !(IN_CI && LINUX);
  return { skip, because: skip ? ` (skipped: ${words.join(" and ")})` : "" };
};
const compiler = without(COMPILER === null && "no C compiler here");
const header = without(
  COMPILER === null && "no C compiler here",
  !existsSync(HEADER) && `no ${HEADER} here: apt-get install libibverbs-dev`,
);
const library = without(
  COMPILER === null && "no C compiler here",
  LIBRARY === null && "no libibverbs.so.1 here: apt-get install libibverbs1",
  !NO_RDMA && "this host has RDMA",
);

const shop = new Workshop();
afterAll(() => shop[Symbol.dispose]());

const LIMIT = 120_000;
const ABI = join(ROOT, "test/native/verbs_abi.c");
const DEVICE = [
  join(ROOT, "test/native/verbs_device.c"),
  ...sources("shim/gpudirect", "device"),
  join(ROOT, "shim/gpudirect/verbs.c"),
  join(ROOT, "shim/common/fail.c"),
  join(ROOT, "shim/common/library.c"),
];
/** What libibverbs itself keeps until the process ends is no leak of ours. */
const ENV = { ASAN_OPTIONS: "detect_leaks=0" };

async function said(words: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { code, output } = await finish(words, env);
  expect({ code, output }).toEqual({ code: 0, output: expect.any(String) });
  return output;
}

describe.skipIf(compiler.skip)(`of libibverbs${compiler.because}`, () => {
  const ours = () => shop.link("abi", [ABI], ADDRESS);

  test(
    "every number that the ABI names is among those that are compared",
    async () => {
      const written = readFileSync(join(ROOT, "shim/gpudirect/verbs_abi.h"), "utf8");
      const names = [...written.matchAll(/\b(IBV_\w+) =/g)].map((match) => match[1]!);
      expect(names.length).toBeGreaterThan(150);
      const output = await said([await ours()]);
      const compared = new Set([...output.matchAll(/^(\w+) = /gm)].map((match) => match[1]));
      expect(names.filter((name) => !compared.has(name))).toEqual([]);
    },
    LIMIT,
  );

  test.skipIf(header.skip)(
    `the ABI as we wrote it down is the one of its header: sizes, places, numbers and functions${header.because}`,
    async () => {
      const real = await shop.link("abi-real", [ABI], [...PLAIN, "-DZAP_VERBS_SYSTEM"]);
      const [mine, theirs] = await Promise.all([said([await ours()]), said([real])]);
      expect(mine.split("\n").length).toBeGreaterThan(400);
      expect(mine).toBe(theirs);
    },
    LIMIT,
  );

  test.skipIf(header.skip)(
    `our sources compile with that header as well${header.because}`,
    async () => {
      const program = await shop.link("device-real", DEVICE, [...PLAIN, "-DZAP_VERBS_SYSTEM"]);
      expect(await said([program])).toBe("device: ok\n");
    },
    LIMIT,
  );

  test(
    "the device part takes the right device, port and GID, or says why none, under sanitizers",
    async () => {
      const program = await shop.link("device", DEVICE, ADDRESS);
      expect(await said([program])).toBe("device: ok\n");
      const absent = "/nowhere/libibverbs.so.1";
      expect(await said([program, "load", absent])).toStartWith(`-4 ${absent} cannot be opened: `);
    },
    LIMIT,
  );

  test(
    "a library that lacks a function is refused by the function's name, and one that lacks newer ones is taken",
    async () => {
      const program = await shop.link("device-load", DEVICE, PLAIN);
      const table = readFileSync(join(ROOT, "shim/gpudirect/verbs.h"), "utf8").split(
        "ZAP_VERBS_OPTIONAL",
      )[0]!;
      const names = [...table.matchAll(/^ {2}X\([^(]*?(\w+), *\\?$|^ {2}X\([^(]*?(\w+), \(/gm)].map(
        (match) => `ibv_${match[1] ?? match[2]}`,
      );
      expect(names.length).toBe(30);
      const library = async (name: string, functions: readonly string[]) => {
        const source = shop.path(`${name}.c`);
        await Bun.write(
          source,
          functions.map((each) => `void ${each}(void);\nvoid ${each}(void) {}\n`).join(""),
        );
        return shop.link(name, [source, "-shared"], PLAIN);
      };
      const old = await library("old.so", names);
      expect(await said([program, "load", old])).toBe("0 \n");
      const older = await library(
        "older.so",
        names.filter((name) => name !== "ibv_query_gid"),
      );
      const text = `-5 ${older} has no ibv_query_gid: it is too old; libibverbs 1.1 or a newer one (rdma-core) is needed\n`;
      expect(await said([program, "load", older])).toBe(text);
    },
    LIMIT,
  );

  test.skipIf(library.skip)(
    `the real library says on a host without RDMA that there is none${library.because}`,
    async () => {
      const program = await shop.link("device-none", DEVICE, ADDRESS);
      expect(await said([program, "none", LIBRARY!], ENV)).toBe("none: ok\n");
    },
    LIMIT,
  );
});
