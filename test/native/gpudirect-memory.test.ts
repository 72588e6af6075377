/** The gpudirect shim over memory that the CPU cannot touch, against the double of libibverbs, under sanitizers. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { noNative, theNative } from "../support/native.ts";
import { ADDRESS, COMPILER, finish, IN_CI, PLAIN, ROOT, gpudirectSources, Workshop } from "./toolchain.ts";

const none = noNative || process.platform !== "linux" || (COMPILER === null && !IN_CI);

const SOURCES = [join(ROOT, "test/native/gpudirect_memory.c"), ...gpudirectSources()];

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

describe.skipIf(none)("nodes over memory that the CPU cannot touch", () => {
  for (const [name, flags] of [
    ["plain", PLAIN],
    ["checked", ADDRESS],
  ] as const) {
    test(`${name}: by dma-buf and by peermem, and whatever fails`, async () => {
      // The double looks for what lies behind the memory in the program itself.
      const program = await shop.link(name, SOURCES, [...flags, "-rdynamic"]);
      // What the last check leaves registered on purpose is the double's, and never freed.
      const env = { ASAN_OPTIONS: "detect_leaks=0" };
      const { code, output } = await finish([program, join(theNative().doubles, "libibverbs.so.1")], env);
      expect({ code, output }).toEqual({ code: 0, output: "gpudirect_memory: ok\n" });
    }, 120_000);
  }
});
