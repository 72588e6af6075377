/** Fuzzes a C program over its kept corpus: with a driver of our own always, with libFuzzer where a soak was asked for. */
import { expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { ADDRESS, finish, IN_CI, ROOT, type Workshop } from "./toolchain.ts";

export const SOAK = process.env["ZAP_TEST_SOAK"] === "1";

const SECONDS = SOAK ? 10 : 3;
const NATIVE = join(ROOT, "test/native");
const CLANG = Bun.which("clang");
const LIBFUZZER = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-fsanitize=fuzzer,address,undefined"];

export interface Fuzzed {
  /** Of `test/native/<name>_fuzz.c` and the folder `test/native/<name>_corpus`. */
  readonly name: string;
  /** The sources that are fuzzed. */
  readonly sources: readonly string[];
  /** The longest input that libFuzzer makes, in bytes. */
  readonly longest: number;
  /** More flags for libFuzzer's build. */
  readonly flags?: readonly string[];
}

/** Adds the tests; to be called inside a `describe`. `shop` is there by the time that they run. */
export function testFuzzing({ name, sources, longest, flags = [] }: Fuzzed, shop: () => Workshop): void {
  const main = join(NATIVE, `${name}_fuzz.c`);
  const corpus = readdirSync(join(NATIVE, `${name}_corpus`))
    .sort()
    .map((file) => join(NATIVE, `${name}_corpus`, file));

  test("withstand what a fuzzer makes of a kept corpus", async () => {
    const driver = join(NATIVE, "fuzz_driver.c");
    const program = await shop().link(`${name}-fuzz`, [driver, main, ...sources], ADDRESS);
    const { code, output } = await finish([program, `${SECONDS}`, ...corpus], {
      FUZZ_SEED: SOAK ? `${process.pid}` : "1",
    });
    expect(output.trim()).toMatch(/^\d+ inputs: ok$/);
    expect(code).toBe(0);
  }, 120_000);

  const missing = CLANG === null && !IN_CI;
  test.skipIf(!SOAK || missing)(
    `withstand libFuzzer${SOAK && missing ? " (skipped: no clang here)" : ""}`,
    async () => {
      expect(CLANG).not.toBeNull();
      const program = shop().path(`${name}-libfuzzer`);
      const words = [
        CLANG!,
        ...LIBFUZZER,
        ...flags,
        "-DFUZZ_LIBFUZZER",
        `-I${ROOT}/shim/include`,
        main,
        ...sources,
      ];
      const built = await finish([...words, "-o", program]);
      expect(built.output).toBe("");
      // It adds what it finds to the folder that it is given.
      const found = shop().path(`${name}-corpus`);
      mkdirSync(found);
      for (const file of corpus) copyFileSync(file, join(found, basename(file)));
      const run = [program, `-max_total_time=${SECONDS}`, `-max_len=${longest}`, found];
      const { code, output } = await finish(run);
      expect(code === 0 ? "" : output.slice(-8_000)).toBe("");
    },
    180_000,
  );
}
