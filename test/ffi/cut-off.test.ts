import { afterAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { noCompiler } from "../support/compiler.ts";
import type { CutOffReport } from "./cut-off.script.ts";
import { fileIn, forgetStandIns, standIn, temporary } from "./stand-in.ts";

afterAll(forgetStandIns);

describe.skipIf(noCompiler || process.platform !== "linux")("a shim that was cut off on its way here", () => {
  test("is told so at every length, also where zeros follow, and never ends the process", async () => {
    const library = fileIn(standIn("libzap_uma_cuda"), "libzap_uma_cuda");
    const child = Bun.spawn(
      [process.execPath, join(import.meta.dir, "cut-off.script.ts"), library, temporary()],
      { stdout: "pipe", stderr: "pipe" },
    );
    const [out, err, code] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    expect({ code, signal: child.signalCode, err }).toEqual({ code: 0, signal: null, err: "" });
    const { bytes, tried, loaded, zerosLoaded, said, rows } = JSON.parse(out) as CutOffReport;
    expect(tried).toBeGreaterThan(400);
    expect(loaded).toEqual([bytes]);
    expect(zerosLoaded).toEqual([]);
    expect(said.sort()).toEqual([
      "FILE is an ELF file without segments",
      `FILE is built for ELF machine N, not ${process.arch.replaceAll(/\d+/g, "N")}`,
      "FILE is cut off: N bytes of at least N",
      "FILE is damaged: no names of sections",
      "FILE is empty",
      "FILE is no ELF library",
      "FILE is not of N bits",
    ]);
    expect(rows.sort()).toEqual(["false: FILE is cut off: N bytes of at least N", "false: FILE is empty"]);
  });
});
