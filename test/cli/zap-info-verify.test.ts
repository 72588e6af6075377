import { describe, expect, test } from "bun:test";
import { names } from "../../lib/cli/verify.ts";
import { main } from "../../lib/cli/zap-info.ts";
import { SCHEMES, type BackendReport } from "../../lib/index.ts";
import { GpuBackend } from "../../lib/verify/backends/gpu.ts";
import { checkVerifySettings, verifyBackends as reportsOf } from "../../lib/verify/registry.ts";
import { cpuAlone, poor, verifiers } from "./zap-info-rows.ts";

async function run(argv: string[], backends: readonly BackendReport[], env: Record<string, string> = {}) {
  const text = { stdout: "", stderr: "" };
  const output = (name: keyof typeof text) => ({ write: (chunk: string) => (text[name] += chunk) });
  const io = { stdout: output("stdout"), stderr: output("stderr"), env };
  const sources = {
    probeAll: async () => poor,
    probe: () => Promise.reject(new Error("not asked")),
    verifyBackends: () => backends,
  };
  return { code: await main(argv, io, sources), ...text };
}

describe("batch verification in zap-info", () => {
  test("says which backend serves which scheme, and why not the others", async () => {
    const { code, stdout } = await run([], verifiers);
    expect(code).toBe(0);
    expect(stdout).toContain(
      [
        "batch verification",
        "  cuda is usable here",
        "    ✓ ed25519",
        "    ✗ secp256k1, bls12-381, ml-dsa (all 3 sets), slh-dsa (all 12 sets): no",
        "      kernel for them yet",
        "  cpu is usable here",
        "    ✓ every scheme",
        "",
      ].join("\n"),
    );
    for (const line of stdout.split("\n").slice(stdout.split("\n").indexOf("batch verification")))
      expect(Bun.stringWidth(line)).toBeLessThanOrEqual(80);
  });

  test("a backend that is not there says what is missing", async () => {
    const { code, stdout } = await run([], cpuAlone);
    expect(code).toBe(0);
    expect(stdout).toContain(
      "  cuda is not usable here\n    ✗ ed25519: the driver is not here: install it\n",
    );
  });

  test("a backend that is forced is marked, or refused with what is missing", async () => {
    const forced = { ZAP_VERIFY_BACKEND: "CUDA" };
    const there = await run([], verifiers, forced);
    expect(there.code).toBe(0);
    expect(there.stdout).toContain("  cuda is usable here, and forced by ZAP_VERIFY_BACKEND\n");
    const missing = await run([], cpuAlone, forced);
    expect(missing.code).toBe(1);
    expect(missing.stdout).toContain("  cuda is not usable here, and forced by ZAP_VERIFY_BACKEND\n");
    expect(missing.stderr).toContain("the driver is not here: install it (ERR_ZAP_NOT_AVAILABLE)");
  });

  test("a setting with a bad value is an error, and everything else is shown all the same", async () => {
    for (const [name, value] of [
      ["ZAP_VERIFY_BACKEND", "gpu"],
      ["ZAP_VERIFY_WORKERS", "many"],
      ["ZAP_VERIFY_GPU_LEAST", "-1"],
    ] as const) {
      const { code, stdout, stderr } = await run([], verifiers, { [name]: value });
      expect(code).toBe(1);
      expect(stderr).toContain(name);
      expect(stderr).toContain("ERR_ZAP_CONFIG");
      expect(stdout).toContain("✓ every scheme");
      const { verify } = JSON.parse((await run(["--json"], verifiers, { [name]: value })).stdout);
      expect(verify.error.code).toBe("ERR_ZAP_CONFIG");
      expect(verify.backends).toEqual(verifiers);
    }
  });

  test("a bad setting of a device keeps nobody from asking what there is", () => {
    for (const [name, value] of [
      ["ZAP_VERIFY_GPU_LEAST", "0"],
      ["ZAP_VERIFY_GPU_BYTES", "4294967296"],
    ] as const) {
      const gpu = new GpuBackend(
        { name: "cpu", serves: () => true, run: () => Promise.resolve() },
        {
          env: { [name]: value },
        },
      );
      const [report] = reportsOf([gpu]);
      expect(report).toMatchObject({ name: "cuda", leastItems: null });
      expect(() => checkVerifySettings({ [name]: value }, [report!])).toThrow(name);
    }
    const reports = reportsOf([
      { name: "cuda", leastItems: Infinity, serves: () => true, run: () => Promise.resolve() },
    ]);
    expect(reports[0]?.leastItems).toBe("never");
  });

  test("names schemes shortly", () => {
    expect(names(SCHEMES)).toBe("every scheme");
    expect(names(["ed25519", "ml-dsa-44"])).toBe("ed25519, ml-dsa-44");
    expect(names(["ml-dsa-44", "ml-dsa-65", "ml-dsa-87"])).toBe("ml-dsa (all 3 sets)");
  });
});
