import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { ABI_VERSION } from "../../lib/ffi/index.ts";
import { noNative, theNative } from "../support/native.ts";
import { CARRIED, forgetProjects, install, nativeIn, pack, run, succeed, temporary } from "./project.ts";

afterAll(forgetProjects);

/** Loads every shim that an executable carries, and says from where; then what the probes say of theirs. */
const PROGRAM = `
  import { probeAll } from "@luxfi/zap";
  import { tryShim } from "./node_modules/@luxfi/zap/lib/ffi/index.ts";
  const shims = {};
  for (const name of ${JSON.stringify(CARRIED)}) {
    const found = await tryShim(name);
    shims[name] = "shim" in found ? [found.shim.path, found.shim.call.abi()] : found;
  }
  const rows = (await probeAll()).flatMap((probe) => probe.prerequisites);
  const missing = rows.filter((row) => row.name.startsWith("libzap_") && !row.met);
  console.log(JSON.stringify({ shims, missing }));
`;

interface Said {
  readonly shims: Record<string, [path: string, abi: number] | { seen: string; fix: string }>;
  readonly missing: { name: string; seen: string; fix: string }[];
}

async function said(
  command: readonly string[],
  cwd: string,
  env: Record<string, string> = {},
): Promise<Said> {
  return JSON.parse(await succeed(command, cwd, env)) as Said;
}

async function compile(project: string): Promise<string> {
  writeFileSync(join(project, "program.ts"), PROGRAM);
  await succeed([process.execPath, "build", "--compile", "program.ts", "--outfile", "program"], project);
  return join(project, "program");
}

describe.skipIf(noNative)("the package", () => {
  let tarball = "";
  beforeAll(async () => {
    tarball = await pack();
  });

  test("carries the shims, and is installed without zig or anything else for development", async () => {
    const project = await install(tarball);
    const installed = readdirSync(join(project, "node_modules"));
    for (const name of Object.keys(packageJson.dependencies))
      expect(installed).toContain(name.split("/")[0]!);
    const development = Object.keys(packageJson.devDependencies).map((name) => name.split("/")[0]!);
    expect(installed.filter((name) => development.includes(name))).toEqual([]);
    const shims = readdirSync(nativeIn(project));
    expect(shims.map((file) => file.split(".")[0])).toEqual(expect.arrayContaining([...CARRIED]));
    for (const file of shims) expect(statSync(join(nativeIn(project), file)).size).toBeLessThan(640 * 1024);

    writeFileSync(join(project, "program.ts"), PROGRAM);
    const { shims: loaded, missing } = await said([process.execPath, "program.ts"], project);
    for (const name of CARRIED) {
      expect(loaded[name]).toEqual([expect.stringContaining(join("@luxfi", "zap", "native")), ABI_VERSION]);
    }
    expect(missing).toEqual([]);

    const info = await run([process.execPath, "x", "zap-info", "--json"], project);
    expect({ code: info.code, stderr: info.stderr }).toEqual({ code: 0, stderr: "" });
    const { transports, picked } = JSON.parse(info.stdout) as {
      transports: { name: string; prerequisites: { name: string; met: boolean; seen: string }[] }[];
      picked: { name: string };
    };
    expect(typeof picked.name).toBe("string");
    const own = transports
      .flatMap(({ prerequisites }) => prerequisites)
      .filter(({ name }) => name.startsWith("libzap_"));
    expect(own.length).toBeGreaterThan(0);
    for (const row of own)
      expect([row.name, row.met, row.seen]).toEqual([row.name, true, expect.stringContaining("native")]);
  });

  test("goes into a compiled executable with its shims, which needs nothing else", async () => {
    const project = await install(tarball);
    const elsewhere = temporary();
    renameSync(await compile(project), join(elsewhere, "program"));
    rmSync(project, { recursive: true });
    const { shims, missing } = await said(["./program"], elsewhere);
    for (const name of CARRIED)
      expect(shims[name]).toEqual([expect.stringContaining("/$bunfs/root/"), ABI_VERSION]);
    expect(missing).toEqual([]);

    // What an operator puts into ZAP_LIB_DIR comes first all the same.
    const own = temporary();
    const [name] = CARRIED as [string];
    const file = readdirSync(theNative().shims).find((each) => each.startsWith(`${name}.`))!;
    copyFileSync(join(theNative().shims, file), join(own, file));
    const configured = await said(["./program"], elsewhere, { ZAP_LIB_DIR: own });
    expect(configured.shims[name]).toEqual([join(own, file), ABI_VERSION]);

    // Its libraries are unpacked to be loaded; where that cannot be done, it says so and what to do.
    const nowhere = await said(["./program"], elsewhere, {
      TMPDIR: "/no/such/folder",
      BUN_TMPDIR: "/no/such/folder",
    });
    for (const name of CARRIED) {
      expect(nowhere.shims[name]).toMatchObject({
        seen: expect.stringContaining("cannot be loaded: "),
        fix: expect.stringContaining("let TMPDIR name a folder that is writable"),
      });
    }
  });

  test("takes its shims along into a bundle", async () => {
    const project = await install(tarball);
    writeFileSync(join(project, "program.ts"), PROGRAM);
    await succeed([process.execPath, "build", "--target=bun", "program.ts", "--outdir", "out"], project);
    const elsewhere = temporary();
    renameSync(join(project, "out"), join(elsewhere, "out"));
    rmSync(project, { recursive: true });
    const { shims } = await said([process.execPath, join("out", "program.js")], elsewhere);
    for (const name of CARRIED)
      expect(shims[name]).toEqual([expect.stringContaining(join(elsewhere, "out")), ABI_VERSION]);
  });

  test("without shims still compiles and runs, finds them beside it, and else says what it lacks", async () => {
    const project = await install(await pack({ withNative: false }));
    expect(existsSync(nativeIn(project))).toBe(false);
    const elsewhere = temporary();
    renameSync(await compile(project), join(elsewhere, "program"));
    const { shims, missing } = await said(["./program"], elsewhere);
    for (const name of CARRIED) {
      expect(shims[name]).toMatchObject({
        seen: expect.stringContaining(`not found as ${join(elsewhere, "native")}`),
        fix: expect.stringContaining("ZAP_LIB_DIR"),
      });
    }
    for (const row of missing) expect(row.seen).toContain("not found as ");

    const beside = join(elsewhere, "native", nativeIn(project).split("/").at(-1)!);
    mkdirSync(beside, { recursive: true });
    for (const file of readdirSync(theNative().shims))
      copyFileSync(join(theNative().shims, file), join(beside, file));
    const found = await said(["./program"], elsewhere);
    for (const name of CARRIED)
      expect(found.shims[name]).toEqual([expect.stringContaining(beside), ABI_VERSION]);

    await succeed([process.execPath, "build", "--target=bun", "program.ts", "--outdir", "out"], project);
    renameSync(join(project, "out"), join(elsewhere, "out"));
    const bundle = await said([process.execPath, join("out", "program.js")], elsewhere);
    for (const name of CARRIED) {
      const seen = expect.stringContaining(`not found as ${join(elsewhere, "out", "native")}`);
      expect(bundle.shims[name]).toMatchObject({ seen });
    }
  });
});
