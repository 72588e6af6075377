import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { parseRounds, parseSizes, SIZE_MAX } from "../../bench/values.ts";

const ROOT = join(import.meta.dir, "..", "..");
const PROGRAMS = { bench: "run.ts", "bench:receive": "receive/run.ts", "bench:pool": "pool.ts" };

function run(file: string, ...words: string[]) {
  const command = [process.execPath, join(ROOT, "bench", file), ...words];
  const { exitCode, stdout, stderr } = Bun.spawnSync(command, { stdin: "ignore", timeout: 60_000 });
  return { exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
}

describe("sizes", () => {
  test("are bytes, KiB or MiB, each once", () => {
    expect(parseSizes("256,64KiB, 1 MiB,65536,16b", 16)).toEqual([256, 65_536, 1_048_576, 16]);
    expect(parseSizes("8MiB", 16)).toEqual([SIZE_MAX]);
  });

  for (const text of ["", "15", "9MiB", "4KB", "1e3", "-1", "256,", "0x100"]) {
    test(`are not ${JSON.stringify(text)}`, () =>
      expect(() => parseSizes(text, 16)).toThrow("--sizes: 16 to"));
  }
});

describe("rounds", () => {
  test("are whole numbers", () => expect([parseRounds("1"), parseRounds("1000")]).toEqual([1, 1_000]));
  for (const text of ["", "0", "1.5", "1001", "1e2", "-3", "many"]) {
    test(`are not ${JSON.stringify(text)}`, () =>
      expect(() => parseRounds(text)).toThrow("--rounds: a whole"));
  }
});

for (const [name, file] of Object.entries(PROGRAMS)) {
  describe(`bun run ${name}`, () => {
    test("--help says what can be asked for", () => {
      const { exitCode, stdout, stderr } = run(file, "--help");
      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
      expect(stdout).toStartWith(`bun run ${name} [options]\n`);
      for (const option of ["--rounds N", "--json", "--help"]) expect(stdout).toContain(option);
    });

    for (const words of [["--nope"], ["word"], ["--rounds", "1.5"], ["--rounds", "--json"], ["--rounds"]]) {
      test(`refuses ${words.join(" ")} in one line`, () => {
        const { exitCode, stdout, stderr } = run(file, ...words);
        expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
        expect(stderr).toStartWith(`${name}: `);
        expect(stderr).toEndWith(" (see --help)\n");
        expect(stderr.trimEnd()).not.toContain("\n");
      });
    }
  });
}

test("bench:receive refuses a size above what a frame may have, bench:pool a library that is not there", () => {
  expect(run("receive/run.ts", "--sizes", "64MiB")).toMatchObject({
    exitCode: 2,
    stderr: expect.stringContaining('got "64MiB"'),
  });
  expect(run("pool.ts", "--cuda", "no-such/libcuda.so.1")).toMatchObject({
    exitCode: 2,
    stderr: expect.stringContaining(join(process.cwd(), "no-such", "libcuda.so.1")),
  });
});

test("bench:pool --json prints numbers by name", () => {
  const { exitCode, stdout } = run("pool.ts", "--rounds", "1", "--json");
  expect(exitCode).toBe(0);
  const { bun, load, rounds, size, results } = JSON.parse(stdout);
  expect({ bun, rounds, size }).toEqual({ bun: Bun.version, rounds: 1, size: 4_096 });
  expect(load).toBeNumber();
  expect(results.length).toBeGreaterThan(3);
  for (const row of results) {
    expect(row).toEqual({
      contender: expect.any(String),
      buffers: expect.any(Number),
      medianNanos: expect.any(Number),
      leastNanos: expect.any(Number),
      mostNanos: expect.any(Number),
    });
  }
});
