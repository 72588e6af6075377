/** The pool, the wire and the CUDA shim under load, the shim under AddressSanitizer and UBSan, its driver a double. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ADDRESS, COMPILER, finish, IN_CI, PLAIN, ROOT, sources, Workshop } from "./toolchain.ts";

/** In each direction. `ZAP_TEST_SOAK=1` makes it a million messages in all. */
const MESSAGES = process.env["ZAP_TEST_SOAK"] === "1" ? 500_000 : 25_000;

const shop = new Workshop();
afterAll(() => shop[Symbol.dispose]());

/** Whether the sanitizer's library can be loaded before everything else; gcc alone has it as a library by itself. */
async function preloadable(): Promise<string | null> {
  if (COMPILER === null || process.platform !== "linux") return null;
  const { output } = await finish([COMPILER, "-print-file-name=libasan.so"]);
  return output.trim().startsWith("/") ? output.trim() : null;
}

const lsan = await preloadable();
const missing = lsan === null && !IN_CI;

describe.skipIf(missing)(`a soak${missing ? " (skipped: no gcc with libasan.so here)" : ""}`, () => {
  test(`of ${(2 * MESSAGES).toLocaleString("en")} messages loses none, leaks nothing, and leaves no handle`, async () => {
    expect(lsan).not.toBeNull();
    const kernels = shop.path("kernels");
    mkdirSync(kernels);
    for (const [name, entry] of [
      ["check_headers", "zap_check_headers"],
      ["ed25519", "zap_verify_ed25519"],
    ])
      writeFileSync(
        join(kernels, `${name}.ptx`),
        `.version 6.0\n.target sm_70\n.visible .entry ${entry}(\n)\n`,
      );
    const flags = [...ADDRESS, "-DZAP_UMA_PREFIX=zap_uma_cuda_", `-I${kernels}`, `-I${ROOT}/shim/kernels`];
    const parts = [
      ...sources("shim/common"),
      ...sources("shim/uma", "cuda"),
      join(ROOT, "shim/kernels/check_headers.c"),
      join(ROOT, "shim/kernels/ed25519.c"),
      join(ROOT, "shim/kernels/embedded_ptx.c"),
    ];
    const objects = await shop.objects("cuda", parts, flags);
    mkdirSync(shop.path("shims"));
    await shop.link("shims/libzap_uma_cuda.so", ["-shared", ...objects], flags);
    mkdirSync(shop.path("double"));
    const driver = ["cuda.c", "double.c", "double_memory.c"].map((file) => join(ROOT, "test/doubles", file));
    const double = await shop.link(
      "double/libcuda.so.1",
      ["-shared", "-Wno-missing-prototypes", ...driver],
      PLAIN,
    );
    const script = join(import.meta.dir, "soak.script.ts");
    const { code, output } = await finish(
      [process.execPath, script, shop.path("shims"), double, String(MESSAGES), lsan!],
      {
        LD_PRELOAD: lsan!,
        // The runtime handles such signals itself.
        ASAN_OPTIONS:
          "detect_leaks=1:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:abort_on_error=1",
        ZAP_TRANSPORT_QUIET: "1",
      },
    );
    const result = JSON.parse(output.split("\n").find((line) => line.startsWith("{")) ?? "null");
    const closed = { undelivered: 0, unread: 0, buffers: 0 };
    expect({ code, output: result === null ? output : "", result }).toMatchObject({
      code: 0,
      output: "",
      result: { messages: 2 * MESSAGES, wrong: 0, reports: [closed, closed], live: 0, leaks: 0 },
    });
    expect(result.visits).toBeGreaterThan(0);
    expect(result.allocated).toBeGreaterThan(0);
  }, 300_000);
});
