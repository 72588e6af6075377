import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { libDirFault, locateLibrary, locateShim, platformHere, platformLabel } from "../../lib/ffi/index.ts";
import { elf, forgetHosts, madeUpHost, type Files } from "./made-up-host.ts";

afterAll(forgetHosts);

const linux = { platform: "linux", arch: "x64", musl: false } as const;

function cache(...texts: string[]): string {
  return `glibc-ld.so.cache1.1\0\x01\x02\0${texts.join("\0")}\0`;
}

/** What `locateLibrary` finds among these files, without the folder that stands for `/`. */
function find(soname: string, files: Files, env: Record<string, string> = {}, arch = "x64"): string | null {
  const { root } = madeUpHost(files);
  return locateLibrary(soname, { root, env, platform: { ...linux, arch } })?.slice(root.length) ?? null;
}

describe("locateLibrary", () => {
  test("finds nothing on an empty host", () => {
    expect(find("libcuda.so.1", {})).toBeNull();
  });

  for (const folder of [
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/lib/wsl/lib",
    "/opt/rocm/lib",
  ]) {
    test(`looks in ${folder}`, () => {
      expect(find("libcuda.so.1", { [`${folder}/libcuda.so.1`]: elf() })).toBe(`${folder}/libcuda.so.1`);
    });
  }

  test("takes the folders of the other architecture on ARM", () => {
    const files = {
      "/usr/lib/x86_64-linux-gnu/libcuda.so.1": elf(62),
      "/usr/lib/aarch64-linux-gnu/libcuda.so.1": elf(183),
    };
    expect(find("libcuda.so.1", files, {}, "arm64")).toBe("/usr/lib/aarch64-linux-gnu/libcuda.so.1");
    expect(find("libcuda.so.1", files)).toBe("/usr/lib/x86_64-linux-gnu/libcuda.so.1");
  });

  test("prefers LD_LIBRARY_PATH, then the cache, then the usual folders", () => {
    const usual = { "/usr/lib/libcuda.so.1": elf() };
    const cached = {
      ...usual,
      "/opt/driver/libcuda.so.1": elf(),
      "/etc/ld.so.cache": cache("libcuda.so.1", "/opt/driver/libcuda.so.1"),
    };
    const configured = { ...cached, "/mine/libcuda.so.1": elf() };
    const env = { LD_LIBRARY_PATH: "/nowhere:/mine" };
    expect(find("libcuda.so.1", usual, env)).toBe("/usr/lib/libcuda.so.1");
    expect(find("libcuda.so.1", cached, env)).toBe("/opt/driver/libcuda.so.1");
    expect(find("libcuda.so.1", configured, env)).toBe("/mine/libcuda.so.1");
  });

  test("ignores empty and relative entries of LD_LIBRARY_PATH", () => {
    const files = { "/here/libcuda.so.1": elf(), "/libcuda.so.1": elf() };
    expect(find("libcuda.so.1", files, { LD_LIBRARY_PATH: "here::./here:" })).toBeNull();
  });

  test("does not believe a stale cache, and passes over namesakes in it", () => {
    const stale = { "/etc/ld.so.cache": cache("/gone/libcuda.so.1") };
    expect(find("libcuda.so.1", stale)).toBeNull();
    const namesakes = {
      "/etc/ld.so.cache": cache(
        "/a/libcuda.so.1.1",
        "/a/mylibcuda.so.1",
        "a/libcuda.so.1",
        "/b/libcuda.so.1",
      ),
      "/a/libcuda.so.1.1": elf(),
      "/a/mylibcuda.so.1": elf(),
      "/a/libcuda.so.1": elf(),
      "/b/libcuda.so.1": elf(),
    };
    expect(find("libcuda.so.1", namesakes)).toBe("/b/libcuda.so.1");
  });

  test("passes over what this process could not load", () => {
    const wrong = {
      "/a/libcuda.so.1": elf(3, 32),
      "/b/libcuda.so.1": "",
      "/c/libcuda.so.1": "INPUT ( libcuda.so.1.1 ) /* a linker script */",
      "/d/libcuda.so.1": elf(183),
      "/e/libcuda.so.1/folder": "",
      "/f/libcuda.so.1": { link: "/gone" },
    };
    const env = { LD_LIBRARY_PATH: "/a:/b:/c:/d:/e:/f" };
    expect(find("libcuda.so.1", wrong, env)).toBeNull();
    expect(find("libcuda.so.1", { ...wrong, "/usr/lib/libcuda.so.1": elf() }, env)).toBe(
      "/usr/lib/libcuda.so.1",
    );
  });

  test("takes any version where the name ends in *, in folders and in the cache", () => {
    expect(find("libamdhip64.so*", { "/usr/lib/libamdhip64.so.6": elf() })).toBe("/usr/lib/libamdhip64.so.6");
    expect(find("libamdhip64.so*", { "/usr/lib/libamdhip64.so": elf() })).toBe("/usr/lib/libamdhip64.so");
    expect(find("libamdhip64.so*", { "/usr/lib/libamdhip64.sound": elf() })).toBeNull();
    const cached = { "/x/librte_eal.so.23": elf(), "/etc/ld.so.cache": cache("/x/librte_eal.so.23") };
    expect(find("librte_eal.so*", cached)).toBe("/x/librte_eal.so.23");
  });

  test("finds nothing for a path, nor on another system", () => {
    const { root } = madeUpHost({ "/usr/lib/libcuda.so.1": elf() });
    expect(locateLibrary("../lib/libcuda.so.1", { root, env: {}, platform: linux })).toBeNull();
    const platform = { ...linux, platform: "darwin" } as const;
    expect(locateLibrary("libcuda.so.1", { root, env: {}, platform })).toBeNull();
  });
});

describe("libDirFault", () => {
  test("says where ZAP_LIB_DIR names no folder", () => {
    const { root } = madeUpHost({ "/file": "text" });
    for (const fine of [undefined, "", "  ", root, ` ${root} `])
      expect(libDirFault({ ZAP_LIB_DIR: fine })).toBeNull();
    for (const wrong of [join(root, "gone"), join(root, "file")])
      expect(libDirFault({ ZAP_LIB_DIR: wrong })).toBe(`ZAP_LIB_DIR names ${wrong}, which is no folder`);
    expect(libDirFault({ ZAP_LIB_DIR: "no-such-folder" })).toContain(join(process.cwd(), "no-such-folder"));
  });
});

describe("locateShim", () => {
  const packageFolder = join(import.meta.dir, "..", "..");

  test("looks in ZAP_LIB_DIR first, then beside the package, always by absolute path", async () => {
    const { root } = madeUpHost();
    const { path, tried } = await locateShim(
      "libzap_dpdk",
      { ZAP_LIB_DIR: ` ${root} ` },
      { ...linux, arch: "none" },
    );
    expect(path).toBeNull();
    expect(tried).toEqual([
      join(root, "libzap_dpdk.so"),
      join(packageFolder, "native", "linux-none", "libzap_dpdk.so"),
    ]);
    const none = { ...linux, arch: "none" };
    const relative = await locateShim("libzap_dpdk", { ZAP_LIB_DIR: "no-such-folder" }, none);
    expect(relative.tried[0]).toBe(join(process.cwd(), "no-such-folder", "libzap_dpdk.so"));
    expect((await locateShim("libzap_dpdk", { ZAP_LIB_DIR: " " }, none)).tried).toHaveLength(1);
  });

  test("stops at the first file that is there", async () => {
    const { root } = madeUpHost({ "/libzap_uma_cuda.so": "shim" });
    const at = join(root, "libzap_uma_cuda.so");
    expect(await locateShim("libzap_uma_cuda", { ZAP_LIB_DIR: root }, linux)).toEqual({
      path: at,
      tried: [at],
    });
  });

  test("does not take a folder for a library", async () => {
    const { root } = madeUpHost();
    mkdirSync(join(root, "libzap_dpdk.so"));
    const none = { ...linux, arch: "none" };
    expect((await locateShim("libzap_dpdk", { ZAP_LIB_DIR: root }, none)).path).toBeNull();
  });

  test("knows the file names and folders of other platforms", async () => {
    for (const [platform, folder, file] of [
      [{ platform: "darwin", arch: "arm64", musl: false }, "darwin-arm64", "libzap_uma_metal.dylib"],
      [{ ...linux, musl: true }, "linux-x64-musl", "libzap_uma_metal.so"],
      [{ ...linux, arch: "arm64" }, "linux-arm64", "libzap_uma_metal.so"],
    ] as const) {
      const { tried } = await locateShim("libzap_uma_metal", {}, platform);
      expect(tried).toEqual([join(packageFolder, "native", folder, file)]);
    }
  });
});

test("the platform of this process has a label", () => {
  const { platform, arch } = platformHere();
  expect({ platform, arch }).toEqual({ platform: process.platform, arch: process.arch });
  expect(platformLabel(platformHere())).toStartWith(`${process.platform}-${process.arch}`);
});
