import { afterAll, describe, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { ShimError } from "../../lib/errors/index.ts";
import {
  ABI_VERSION,
  openShim,
  platformHere,
  platformLabel,
  tryShim,
  type ShimName,
} from "../../lib/ffi/index.ts";
import { compileLibrary, noCompiler } from "../support/compiler.ts";
import { failureOf } from "../support/wait.ts";
import { fileIn, forgetStandIns, standIn, standInBytes, temporary } from "./stand-in.ts";

afterAll(forgetStandIns);

const CUDA = "libzap_uma_cuda";
const linux = process.platform === "linux";

/** What is the matter with the library in `folder`, after checking that `openShim` says the same. */
async function faultOf(folder: string, name: ShimName = CUDA): Promise<{ seen: string; fix: string }> {
  const env = { ZAP_LIB_DIR: folder };
  const found = await tryShim(name, env);
  if ("shim" in found) throw new Error(`${found.shim.path} was loaded`);
  const error = (await failureOf(openShim(name, env))) as ShimError;
  expect(error).toBeInstanceOf(ShimError);
  expect(error).toMatchObject({ code: "ERR_ZAP_SHIM", library: name, status: null });
  expect(error.message).toBe(`${name}: ${found.seen}. ${found.fix}`);
  return found;
}

/** A folder with a library of these bytes. */
function folderWith(contents: string | Uint8Array, name: ShimName = CUDA): string {
  const folder = temporary();
  writeFileSync(fileIn(folder, name), contents);
  return folder;
}

describe.skipIf(noCompiler)("a shim", () => {
  test("is loaded once from each path, and called by its verbs", async () => {
    const folder = standIn(CUDA, { returns: { live: 42, fence_to_host: -8 } });
    const env = { ZAP_LIB_DIR: folder };
    const shim = await openShim(CUDA, env);
    expect(shim).toMatchObject({ name: CUDA, path: fileIn(folder, CUDA) });
    expect([shim.call.abi(), shim.call.live(), shim.call.fence_to_host(1)]).toEqual([ABI_VERSION, 42, -8]);
    expect(await openShim(CUDA, env)).toBe(shim);
    const other = await openShim(CUDA, { ZAP_LIB_DIR: standIn(CUDA) });
    expect(other).not.toBe(shim);
    expect(other.call.live()).toBe(0);
  });

  test("tells of a failure in its own words, with the status by name", async () => {
    const shim = await openShim(CUDA, { ZAP_LIB_DIR: standIn(CUDA, { error: "cuInit failed: no GPU" }) });
    expect(shim.check(0, "nothing")).toBe(0);
    expect(shim.check(7, "nothing")).toBe(7);
    for (const [status, name] of [
      [-3, "ZAP_E_MEMORY"],
      [-7, "ZAP_E_DEVICE"],
      [-8, "ZAP_E_TIMEOUT"],
      [-99, "status -99"],
    ] as const) {
      let error: unknown;
      try {
        shim.check(status, "opening device 0");
      } catch (caught) {
        error = caught;
      }
      expect(error).toBeInstanceOf(ShimError);
      expect(error).toMatchObject({ code: "ERR_ZAP_SHIM", library: CUDA, status: name });
      expect((error as Error).message).toBe(
        `libzap_uma_cuda: opening device 0 failed: cuInit failed: no GPU (${name})`,
      );
    }
  });

  test("that has no words for it still fails with the status", async () => {
    const shim = await openShim(CUDA, { ZAP_LIB_DIR: standIn(CUDA) });
    expect(() => shim.check(-6, "closing")).toThrow("closing failed: it does not say why (ZAP_E_DRIVER)");
  });

  test("may be reached by a symbolic link", async () => {
    const folder = temporary();
    symlinkSync(fileIn(standIn(CUDA), CUDA), fileIn(folder, CUDA));
    expect((await openShim(CUDA, { ZAP_LIB_DIR: folder })).call.abi()).toBe(ABI_VERSION);
  });
});

describe.skipIf(noCompiler)("what cannot be loaded is named, with what to do:", () => {
  const here = platformLabel(platformHere());

  test("nothing there", async () => {
    // No build is ever made for this one.
    const platform = { ...platformHere(), arch: "none" };
    const folder = temporary();
    const error = await failureOf(openShim(CUDA, { ZAP_LIB_DIR: folder }, platform));
    expect(error).toBeInstanceOf(ShimError);
    expect(error.message).toStartWith(`libzap_uma_cuda: not found as ${fileIn(folder, CUDA)} or /`);
    expect(error.message).toEndWith(
      "bun run build in a checkout, or let ZAP_LIB_DIR name a folder that has it.",
    );
  });

  test("a text, an empty file", async () => {
    for (const text of ["#!/bin/sh\n", "x", "\x7fEL", "INPUT ( libzap.so )".repeat(100)]) {
      const folder = folderWith(text);
      const { seen, fix } = await faultOf(folder);
      expect(seen).toStartWith(`${fileIn(folder, CUDA)} is no `);
      expect(fix).toStartWith(`Put the ${here} build of libzap_uma_cuda`);
    }
    expect((await faultOf(folderWith(""))).seen).toEndWith("is empty");
  });

  test("a folder, a pipe, a link to nowhere", async () => {
    const platform = { ...platformHere(), arch: "none" };
    const folder = temporary();
    mkdirSync(fileIn(folder, CUDA));
    const pipe = temporary();
    Bun.spawnSync(["mkfifo", fileIn(pipe, CUDA)]);
    const link = temporary();
    symlinkSync("/nowhere", fileIn(link, CUDA));
    for (const each of [folder, pipe, link]) {
      const found = await tryShim(CUDA, { ZAP_LIB_DIR: each }, platform);
      expect(found).toMatchObject({ seen: expect.stringContaining("not found as ") });
    }
  });

  test.if(linux)("a library of another architecture, of another system, of 32 bits", async () => {
    const other = standInBytes(CUDA).slice();
    other[18] = process.arch === "x64" ? 183 : 62;
    const arch = process.arch === "x64" ? "arm64" : "x64";
    expect((await faultOf(folderWith(other))).seen).toEndWith(`is built for ${arch}, not ${process.arch}`);
    other[18] = 8;
    expect((await faultOf(folderWith(other))).seen).toContain("is built for ELF machine 8");

    const mac = new Uint8Array(4096);
    new DataView(mac.buffer).setUint32(0, 0xfeedfacf, true);
    expect((await faultOf(folderWith(mac))).seen).toEndWith("is no ELF library");

    const narrow = standInBytes(CUDA).slice();
    narrow[4] = 1;
    expect((await faultOf(folderWith(narrow))).seen).toEndWith("is not of 64 bits");
  });

  test.if(linux)("a program instead of a library", async () => {
    const folder = temporary();
    copyFileSync(process.execPath, fileIn(folder, CUDA));
    const { seen } = await faultOf(folder);
    expect(seen).toMatch(/is an ELF file, but no shared library$|lacks zap_uma_cuda_abi$/);
  });

  test.if(linux && !platformHere().musl)("a library for musl", async () => {
    const musl = temporary();
    compileLibrary("int musl(void) { return 0; }", join(musl, "libc.so"), [
      "-nostdlib",
      "-Wl,-soname,libc.so",
    ]);
    const without = ["-nostdlib", "-Wl,--no-as-needed", join(musl, "libc.so")];
    const folder = standIn("libzap_dpdk", { without: ["error"] }, without);
    expect(readFileSync(fileIn(folder, "libzap_dpdk")).includes("libc.so")).toBe(true);
    expect((await faultOf(folder, "libzap_dpdk")).seen).toEndWith(
      "is built for musl, and this system has glibc",
    );
  });

  test("another ABI version, whatever else it exports", async () => {
    for (const abi of [0, ABI_VERSION + 1, 4_000_000_000]) {
      const { seen, fix } = await faultOf(standIn(CUDA, { abi, without: ["open", "close"] }));
      expect(seen).toEndWith(`has ABI version ${abi}, needed is ${ABI_VERSION}`);
      expect(fix).toContain("from this version of @luxfi/zap");
    }
  });

  test("missing functions, each by its name", async () => {
    const { seen } = await faultOf(standIn(CUDA, { without: ["check_begin", "poller_recv"] }));
    expect(seen).toEndWith("lacks zap_uma_cuda_check_begin, zap_uma_cuda_poller_recv");
  });

  test("a library that is another one", async () => {
    const folder = folderWith(standInBytes("libzap_uma_hip"));
    expect((await faultOf(folder)).seen).toEndWith("is no libzap_uma_cuda: it lacks zap_uma_cuda_abi");
  });

  test.if(linux)("a library that needs another, or a function, that is nowhere", async () => {
    const needy = standIn(CUDA, { more: "int nowhere(void); int ask(void) { return nowhere(); }" }, [
      "-Wl,-z,now",
    ]);
    const { seen, fix } = await faultOf(needy);
    expect(seen).toContain("cannot be loaded: ");
    expect(seen).toContain("nowhere");
    expect(fix).toStartWith("Put a build of it that this system can load");
  });

  test("and found again as soon as it is mended", async () => {
    const folder = folderWith("not yet");
    await faultOf(folder);
    writeFileSync(fileIn(folder, CUDA), standInBytes(CUDA));
    expect((await openShim(CUDA, { ZAP_LIB_DIR: folder })).path).toStartWith(dirname(fileIn(folder, CUDA)));
  });
});
