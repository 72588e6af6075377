/** The Ed25519 kernel, fuzzed: both of its representations have to say the same of anything. Its parts are tested in `test_ed25519*.c`. */
import { afterAll, beforeAll, describe } from "bun:test";
import { join } from "node:path";
import { testFuzzing } from "./fuzzing.ts";
import { COMPILER, IN_CI, ROOT, Workshop } from "./toolchain.ts";

const missing = COMPILER === null && !IN_CI;

describe.skipIf(missing)(`the Ed25519 kernel${missing ? " (skipped: no C compiler here)" : ""}`, () => {
  let shop: Workshop;
  beforeAll(() => {
    shop = new Workshop();
  });
  afterAll(() => shop[Symbol.dispose]());

  const sources = ["five", "ten"].map((name) => join(ROOT, `test/native/ed25519_${name}.c`));
  // Unrolled, clang takes a minute and a half with both sanitizers.
  testFuzzing({ name: "ed25519", sources, longest: 1_024, flags: ["-DZAP_UNROLL="] }, () => shop);
});
