/** The C of the shims, under sanitizers: over a double of a backend, and the CUDA backend over a double of its driver. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { platformHere, platformLabel } from "../../lib/ffi/index.ts";
import { zigHere } from "../../scripts/zig.ts";
import { ADDRESS, COMPILER, IN_CI, PLAIN, ROOT, THREAD, Workshop, finish, sources } from "./toolchain.ts";

const LINUX = process.platform === "linux";
/** The name of a test says why it was skipped. */
const because = (missing: string, there: boolean) => (there || IN_CI ? "" : ` (skipped: no ${missing} here)`);
const needs = (there: boolean) => test.skipIf(!there && !IN_CI);

const COMMON = [
  ...sources("shim/common"),
  join(ROOT, "shim/kernels/check_headers.c"),
  join(ROOT, "shim/kernels/ed25519.c"),
];
const CHECK_CUDA = ["check_cuda.c", "check_cuda_signatures.c"].map((file) => join(ROOT, "shim", file));
const DOUBLE = [...COMMON, join(ROOT, "test/native/double_backend.c")];
const PROGRAMS = sources("test/native", "test_").map((path) => path.slice(path.lastIndexOf("test_") + 5, -2));

let shop: Workshop;
beforeAll(() => {
  shop = new Workshop();
});
afterAll(() => shop[Symbol.dispose]());

async function programs(
  name: string,
  names: readonly string[],
  flags: readonly string[],
): Promise<Map<string, string>> {
  const prefixed = [...flags, "-DZAP_UMA_PREFIX=zap_uma_double_"];
  const objects = await shop.objects(name, DOUBLE, prefixed);
  const built = new Map<string, string>();
  for (const each of names) {
    const main = join(ROOT, "test/native", `test_${each}.c`);
    built.set(each, await shop.link(`${name}-${each}`, [main, ...objects], prefixed));
  }
  return built;
}

async function expectOk(words: readonly string[], name: string, env?: Record<string, string>): Promise<void> {
  const { code, output } = await finish(words, env);
  expect({ code, output }).toEqual({ code: 0, output: `${name}: ok\n` });
}

describe.skipIf(COMPILER === null && !IN_CI)(
  `the parts of the shims${because("C compiler", COMPILER !== null)}`,
  () => {
    test("there is a C compiler", () => expect(COMPILER).not.toBeNull());

    test("hold under AddressSanitizer and UBSan, and leak nothing", async () => {
      expect(PROGRAMS).toEqual([
        "ed25519",
        "ed25519_ten",
        "fail",
        "handles",
        "hang",
        "kernels",
        "poller",
        "threads",
        "uma",
      ]);
      const env = { ASAN_OPTIONS: "detect_leaks=1", UBSAN_OPTIONS: "print_stacktrace=1" };
      for (const [name, path] of await programs("address", PROGRAMS, ADDRESS))
        await expectOk([path], name, env);
    }, 180_000);

    test("hold under ThreadSanitizer", async () => {
      const built = await programs("thread", ["handles", "hang", "poller", "threads", "uma"], THREAD);
      for (const [name, path] of built) await expectOk([path], name);
    }, 180_000);

    const valgrind = Bun.which("valgrind");
    needs(valgrind !== null)(
      `hold under valgrind${because("valgrind", valgrind !== null)}`,
      async () => {
        expect(valgrind).not.toBeNull();
        const built = await programs("plain", ["uma"], PLAIN);
        const words = [
          valgrind!,
          "--quiet",
          "--error-exitcode=99",
          "--leak-check=full",
          "--show-leak-kinds=definite,possible",
        ];
        await expectOk([...words, built.get("uma")!], "uma");
      },
      180_000,
    );

    test.skipIf(!LINUX)(
      "run CUDA over a double of its driver, every call of which fails once",
      async () => {
        const kernels = shop.path("kernels");
        mkdirSync(kernels, { recursive: true });
        for (const name of KERNELS) writeFileSync(join(kernels, `${name}.ptx`), await ptx(name));
        const flags = [...ADDRESS, "-DZAP_UMA_PREFIX=zap_uma_cuda_", `-I${kernels}`];
        const parts = [...COMMON, ...sources("shim/uma", "cuda"), join(ROOT, "shim/kernels/embedded_ptx.c")];
        const objects = await shop.objects("cuda", parts, flags);
        const main = join(ROOT, "test/native/cuda_on_double.c");
        const program = await shop.link("cuda-on-double", [main, ...objects], flags);
        await expectOk([program, await doubles()], "cuda on its double", { ASAN_OPTIONS: "detect_leaks=1" });
      },
      180_000,
    );

    test.skipIf(!LINUX)(
      "check a GPU to the end, also one whose kernel has none",
      async () => {
        const kernels = shop.path("kernels");
        mkdirSync(kernels, { recursive: true });
        for (const name of KERNELS) writeFileSync(join(kernels, `${name}.ptx`), await ptx(name));
        const flags = [
          ...ADDRESS,
          "-DZAP_UMA_PREFIX=zap_uma_cuda_",
          "-DTIMEOUT_MS=2000u",
          "-DSIGNATURES=1024u",
          `-I${kernels}`,
        ];
        const parts = [...COMMON, ...sources("shim/uma", "cuda"), join(ROOT, "shim/kernels/embedded_ptx.c")];
        const objects = await shop.objects("check", [...parts, ...CHECK_CUDA], flags);
        const program = await shop.link("check-cuda", objects, flags);
        const gpu = shop.path("gpu");
        mkdirSync(gpu);
        const driver = join(gpu, "libcuda.so.1");
        copyFileSync(join(await doubles(), "libcuda.so.1"), driver);
        // Its last lines, and what it was about.
        const check = async (behaviour: string) => {
          writeFileSync(join(gpu, "double.conf"), behaviour);
          const { code, output } = await finish([program, driver]);
          return { code, lines: output.trim().split("\n") };
        };
        const healthy = await check("");
        expect(healthy.lines.filter((line) => !line.startsWith("ok "))).toEqual(["check-cuda: all good"]);
        expect(healthy.code).toBe(0);

        const endless = await check("fail.cuEventQuery=600\n");
        expect(endless.code).toBe(1);
        expect(endless.lines.at(-1)).toBe("check-cuda: FAILED");
        expect(endless.lines.at(-2)).toMatch(/^ok +close +nothing left$/);
        const failed = endless.lines.filter((line) => line.startsWith("FAILED"));
        expect(failed).toHaveLength(1);
        expect(failed[0]).toMatch(/^FAILED check in managed +the kernel has not ended after 2000 ms: /);

        // A real kernel without an end: the driver waits for it as well.
        const stuck = await check("fail.cuEventQuery=600\nhang.cuStreamSynchronize=1\n");
        expect(stuck.code).toBe(1);
        expect(stuck.lines.at(-1)).toBe("check-cuda: FAILED");
        expect(stuck.lines.filter((line) => line.startsWith("FAILED")).length).toBeGreaterThan(1);

        const losing = await check("fail.cuMemFreeHost=719\n");
        expect(losing.code).toBe(1);
        expect(losing.lines.find((line) => line.startsWith("FAILED"))).toContain("cuMemFreeHost failed");
      },
      180_000,
    );

    test.skipIf(!LINUX)(
      "run HIP and Metal over doubles of their libraries",
      async () => {
        const embed = `-I${ROOT}/shim/kernels`;
        mkdirSync(shop.path("shims"));
        for (const vendor of ["hip", "metal"]) {
          const flags = [...ADDRESS, `-DZAP_UMA_PREFIX=zap_uma_${vendor}_`, embed];
          const embedded = vendor === "metal" ? [join(ROOT, "shim/kernels/embedded_metal.c")] : [];
          const objects = await shop.objects(
            vendor,
            [...COMMON, ...sources("shim/uma", vendor), ...embedded],
            flags,
          );
          await shop.link(`shims/libzap_uma_${vendor}.so`, ["-shared", ...objects], flags);
        }
        const program = await shop.link(
          "hip-metal",
          [join(ROOT, "test/native/hip_metal_test.c"), LOOSE],
          ADDRESS,
        );
        await expectQuiet([program, shop.path("shims"), await doubles()]);
      },
      180_000,
    );

    test.skipIf(!LINUX)(
      "have doubles that behave as they say",
      async () => {
        const program = await shop.link(
          "doubles-test",
          [join(ROOT, "test/doubles/doubles.test.c"), LOOSE],
          ADDRESS,
        );
        await expectQuiet([program, await doubles()]);
      },
      180_000,
    );
  },
);

/** The doubles define what vendors' headers declare, and there are none of those. */
const LOOSE = "-Wno-missing-prototypes";

let made: Promise<string> | undefined;

/** The folder with the doubles of the vendors' libraries. */
function doubles(): Promise<string> {
  made ??= (async () => {
    mkdirSync(shop.path("doubles"));
    const shared = ["double.c", "double_memory.c"].map((file) => join(ROOT, "test/doubles", file));
    const files = {
      "libcuda.so.1": "cuda.c",
      "libamdhip64.so": "hip.c",
      "libobjc.A.dylib": "objc.c",
      Metal: "metal.c",
    };
    for (const [file, source] of Object.entries(files)) {
      const parts = [join(ROOT, "test/doubles", source), ...shared];
      await shop.link(`doubles/${file}`, ["-shared", LOOSE, ...parts], PLAIN);
    }
    return shop.path("doubles");
  })();
  return made;
}

/** For programs that end children of theirs by a signal, which the sanitizer would take for its own. */
async function expectQuiet(words: readonly string[]): Promise<void> {
  const { code, output } = await finish(words, {
    ASAN_OPTIONS: "detect_leaks=1:handle_segv=0:handle_abort=0",
  });
  expect({ code, output }).toEqual({ code: 0, output: "" });
}

/** What `build.zig` makes PTX of, and the kernel in each. */
const ENTRIES = { check_headers: "zap_check_headers", ed25519: "zap_verify_ed25519" } as const;
type Kernel = keyof typeof ENTRIES;
const KERNELS = Object.keys(ENTRIES) as Kernel[];

/** A kernel as zig makes it; without zig, as much of one as the double looks at. */
async function ptx(name: Kernel): Promise<string> {
  const zig = zigHere(ROOT);
  if (zig === null) return `.version 6.0\n.target sm_70\n.visible .entry ${ENTRIES[name]}(\n)\n`;
  const { code, output } = await finish([
    zig,
    "build",
    "--build-file",
    join(ROOT, "build.zig"),
    "ptx",
    "-p",
    shop.path("ptx"),
  ]);
  expect({ code, output }).toEqual({ code: 0, output: "" });
  return readFileSync(shop.path("ptx", "kernels", `${name}.ptx`), "utf8");
}

const zig = zigHere(ROOT);
needs(zig !== null)(
  `the CUDA kernels are PTX that old drivers and GPUs take${because("zig", zig !== null)}`,
  async () => {
    expect(zig).not.toBeNull();
    for (const name of KERNELS) {
      const text = await ptx(name);
      expect(text).toContain("\n.version 6.0\n");
      expect(text).toContain("\n.target sm_70\n");
      expect(text).toContain(`\n.visible .entry ${ENTRIES[name]}(\n`);
      // One kernel in each, and nothing to be linked.
      expect(text.split(".visible").length).toBe(2);
      expect(text).not.toContain(".extern");
    }
  },
  120_000,
);

const built = join(ROOT, "native", platformLabel(platformHere()));
const checkable = LINUX && existsSync(built) && Bun.which("nm") !== null;
needs(checkable)(
  `the libraries export what their headers declare, and nothing else${because("built libraries", checkable)}`,
  () => {
    const libraries = readdirSync(built).filter((file) => file.endsWith(".so"));
    expect(libraries.map((file) => file.slice(6, -3)).sort()).toEqual([
      "_dpdk",
      "_gpudirect",
      "_uma_cuda",
      "_uma_hip",
      "_uma_metal",
    ]);
    for (const file of libraries) {
      const prefix = file.slice(3, -3);
      const header = prefix.startsWith("zap_uma_") ? "zap_uma" : prefix;
      const text = readFileSync(join(ROOT, "shim/include", `${header}.h`), "utf8");
      const declared = [...text.matchAll(/^ZAP_EXPORT \w+ (?:ZAP_UMA\((\w+)\)|zap_[a-z]+_(\w+))\(/gm)].map(
        ([, uma, other]) => `${prefix}_${uma ?? other}`,
      );
      const { stdout } = Bun.spawnSync(["nm", "-D", "--defined-only", join(built, file)]);
      const exported = stdout
        .toString()
        .trim()
        .split("\n")
        .map((line) => line.split(" ").at(-1)!);
      expect(declared.length).toBeGreaterThan(2);
      expect(exported.sort()).toEqual(declared.sort());
      // A verb that calls another one means its own: no other library's can come in between, and nothing is looked up.
      if (Bun.which("readelf") === null) continue;
      const relocations = Bun.spawnSync([
        "readelf",
        "--relocs",
        "--wide",
        join(built, file),
      ]).stdout.toString();
      expect(relocations).toContain("R_");
      expect(relocations).not.toContain(prefix);
    }
  },
);
