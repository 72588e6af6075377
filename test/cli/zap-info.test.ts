import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { main, type Sources } from "../../lib/cli/zap-info.ts";
import { UnknownTransportError, VERSION, type Probe } from "../../lib/index.ts";
import { poor, rich, verifiers } from "./zap-info-rows.ts";

/** Every variable that the command reads or checks. */
const SETTINGS = [
  ...["ZAP_TRANSPORT", "ZAP_TRANSPORT_STRICT", "ZAP_TRANSPORT_QUIET", "ZAP_LIB_DIR", "ZAP_CUDA_DEVICE"],
  ...["ZAP_DEVICE_MILLIS", "ZAP_UMA_POOL_BYTES", "ZAP_DEBUG", "ZAP_DPDK_VDEV"],
  ...["ZAP_VERIFY_BACKEND", "ZAP_VERIFY_WORKERS", "ZAP_VERIFY_GPU_LEAST", "ZAP_VERIFY_GPU_BYTES"],
  ...["LD_LIBRARY_PATH", "NO_COLOR", "FORCE_COLOR"],
];

interface Run {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function made(probes: readonly Probe[]): Sources {
  return {
    verifyBackends: () => verifiers,
    probeAll: async () => probes,
    probe: async (name) => {
      const found = probes.find((each) => each.name === name);
      if (!found) throw new UnknownTransportError(`no transport is named ${name}; there are a, b`);
      return found;
    },
  };
}

async function run(
  argv: string[],
  probes = poor,
  env: Record<string, string> = {},
  isTTY = false,
): Promise<Run> {
  const text = { stdout: "", stderr: "" };
  const output = (name: keyof typeof text) => ({ isTTY, write: (chunk: string) => (text[name] += chunk) });
  const code = await main(argv, { stdout: output("stdout"), stderr: output("stderr"), env }, made(probes));
  return { code, ...text };
}

describe("the page", () => {
  test("opens with the versions and ends with what pick() resolves to", async () => {
    const { code, stdout, stderr } = await run([]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const lines = stdout.split("\n");
    const platform = `${process.platform}-${process.arch}`;
    expect(lines[0]).toBe(`@luxfi/zap ${VERSION} on Bun ${Bun.version}, ${platform}`);
    expect(lines.slice(-3)).toEqual([
      "→ pick() resolves to default here: default is the best that is usable here;",
      "  gpudirect, dpdk and uma are not.",
      "",
    ]);
  });

  test("marks what the environment asks for", async () => {
    const { code, stdout } = await run([], rich, { ZAP_TRANSPORT: "UMA" });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^uma +yes +yes +→ yes/m);
    expect(stdout).toContain(
      "→ pick() resolves to uma here: uma was asked for by ZAP_TRANSPORT and is usable",
    );
  });

  test("is coloured on a terminal, unless NO_COLOR is set", async () => {
    expect((await run([], poor, {}, true)).stdout).toContain("\x1b[");
    expect((await run([], poor, { NO_COLOR: "1" }, true)).stdout).not.toContain("\x1b");
    expect((await run([], poor, { FORCE_COLOR: "1" })).stdout).toContain("\x1b[");
  });

  test("still shows everything where the settings cannot be met, and says so on stderr", async () => {
    for (const [env, message] of [
      [
        { ZAP_TRANSPORT: "dpdk", ZAP_TRANSPORT_STRICT: "1" },
        "zap-info: dpdk was asked for by ZAP_TRANSPORT and is not usable here; strict allows no other (ERR_ZAP_NOT_AVAILABLE)\n",
      ],
      [
        { ZAP_TRANSPORT: "rdma" },
        'zap-info: no transport is named "rdma" (asked for by ZAP_TRANSPORT); there are gpudirect, dpdk, uma, default, auto (ERR_ZAP_UNKNOWN_TRANSPORT)\n',
      ],
      [
        { ZAP_UMA_POOL_BYTES: "4G" },
        'zap-info: ZAP_UMA_POOL_BYTES is "4G"; it takes decimal bytes, 0 for no bound (ERR_ZAP_CONFIG)\n',
      ],
      [
        { ZAP_DEBUG: "Maybe" },
        'zap-info: ZAP_DEBUG is "Maybe"; it takes 1, true, yes, 0, false or no (ERR_ZAP_CONFIG)\n',
      ],
      [
        { ZAP_TRANSPORT_STRICT: "perhaps" },
        'zap-info: ZAP_TRANSPORT_STRICT is "perhaps"; it takes 1, true, yes, 0, false or no (ERR_ZAP_CONFIG)\n',
      ],
    ] as const) {
      const { code, stdout, stderr } = await run([], poor, env);
      expect(code).toBe(1);
      expect(stderr).toBe(message);
      expect(stdout).toContain("dpdk is not usable here");
      expect(stdout).not.toContain("→");
    }
  });
});

describe("--json", () => {
  test("prints exactly the documented object, never in colour", async () => {
    const { code, stdout, stderr } = await run(["--json"], rich, { FORCE_COLOR: "1" }, true);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({
      version: VERSION,
      bun: Bun.version,
      platform: `${process.platform}-${process.arch}`,
      transports: rich,
      verify: { backends: verifiers },
      picked: {
        name: "gpudirect",
        reason: "gpudirect is the best there is, and usable here",
        tried: [{ name: "gpudirect", code: "ok", reason: "usable here" }],
      },
    });
    expect(Object.keys(JSON.parse(stdout))).toEqual([
      "version",
      "bun",
      "platform",
      "transports",
      "verify",
      "picked",
    ]);
  });

  test("keeps to the documented fields where a probe has more", async () => {
    const extra = poor.map((each) => ({
      ...each,
      secret: 1,
      prerequisites: each.prerequisites.map((one) => ({ ...one, secret: 2 })),
    }));
    const { stdout } = await run(["--json"], extra);
    expect(JSON.parse(stdout).transports).toEqual(poor);
  });

  test("has the error where the settings cannot be met", async () => {
    const strict = await run(["--json"], poor, { ZAP_TRANSPORT: "dpdk", ZAP_TRANSPORT_STRICT: "yes" });
    expect(strict.code).toBe(1);
    const { picked, error, transports } = JSON.parse(strict.stdout);
    expect(picked).toBeNull();
    expect(error.code).toBe("ERR_ZAP_NOT_AVAILABLE");
    expect(error.message).toContain("hugepages: 0 of 1024 pages");
    expect(transports).toHaveLength(4);
    expect(strict.stderr).toStartWith("zap-info: dpdk was asked for");

    const unknown = await run(["--json"], poor, { ZAP_TRANSPORT: "rdma" });
    expect(unknown.code).toBe(1);
    expect(JSON.parse(unknown.stdout).error.code).toBe("ERR_ZAP_UNKNOWN_TRANSPORT");
  });
});

describe("--check", () => {
  test("answers in one line and by the exit status", async () => {
    expect(await run(["--check", "default"])).toEqual({
      code: 0,
      stdout: "default is usable here: sockets over heap\n",
      stderr: "",
    });
    expect(await run(["--check=dpdk"])).toEqual({
      code: 1,
      stdout: "dpdk is not usable here; missing: hugepages\n",
      stderr: "",
    });
  });

  test("does not depend on what the environment asks for", async () => {
    expect((await run(["--check", "default"], poor, { ZAP_TRANSPORT: "rdma" })).code).toBe(0);
  });

  test("answers 1 where pick would refuse the settings, whatever the host can do", async () => {
    const env = { ZAP_CUDA_DEVICE: "first" };
    const stderr =
      'zap-info: ZAP_CUDA_DEVICE is "first"; it takes a decimal number from 0 to 1023 (ERR_ZAP_CONFIG)\n';
    for (const name of ["default", "dpdk"])
      expect(await run(["--check", name], poor, env)).toEqual({ code: 1, stdout: "", stderr });
    expect((await run(["--check", "rdma"], poor, env)).code).toBe(2);
  });

  test("answers 2 and lists the known names for an unknown one", async () => {
    expect(await run(["--check", "rdma"])).toEqual({
      code: 2,
      stdout: "",
      stderr: "zap-info: no transport is named rdma; there are a, b\n",
    });
  });
});

describe("options", () => {
  test("--help prints the usage, within 80 columns", async () => {
    for (const option of ["--help", "-h"]) {
      const { code, stdout, stderr } = await run([option]);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout).toStartWith("Usage: zap-info");
      for (const each of ["--json", "--check NAME", "--help"]) expect(stdout).toContain(each);
      expect(stdout.split("\n").every((line) => line.length <= 80)).toBe(true);
      for (const each of SETTINGS) expect(stdout).toContain(each);
    }
  });

  for (const argv of [
    ["--bogus"],
    ["-x"],
    ["dpdk"],
    ["--check"],
    ["--json=1"],
    ["--json", "--check", "dpdk"],
  ]) {
    test(`${argv.join(" ")} is refused with the usage on stderr`, async () => {
      const { code, stdout, stderr } = await run(argv);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
      expect(stderr).toStartWith("zap-info: ");
      expect(stderr).toContain("Usage: zap-info");
    });
  }
});

describe("its page in docs/", () => {
  const page = readFileSync(join(import.meta.dir, "..", "..", "docs", "zap-info.md"), "utf8");

  test("names every setting", () => {
    for (const each of SETTINGS) expect(page).toContain(`\`${each}\``);
  });
});

describe("the real command", () => {
  const file = join(import.meta.dir, "..", "..", "lib", "cli", "zap-info.ts");

  async function spawn(argv: string[], env: Record<string, string> = {}): Promise<Run> {
    const command = Bun.spawn([process.execPath, file, ...argv], {
      env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...env },
      stdout: "pipe",
      stderr: "pipe",
    });
    const [stdout, stderr, code] = await Promise.all([
      new Response(command.stdout).text(),
      new Response(command.stderr).text(),
      command.exited,
    ]);
    return { code, stdout, stderr };
  }

  test("looks at this host", async () => {
    const { code, stdout, stderr } = await spawn([]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toContain("→ pick() resolves to default here");
    expect(stdout).not.toContain("\x1b");
    for (const name of ["gpudirect", "dpdk", "uma"]) expect(stdout).toContain(`${name} is not usable here`);
  });

  test("prints JSON, and exit statuses", async () => {
    const [json, strict, usable, unusable, unknown, wrong] = await Promise.all([
      spawn(["--json"]),
      spawn([], { ZAP_TRANSPORT: "GPUdirect", ZAP_TRANSPORT_STRICT: "1" }),
      spawn(["--check", "Default"]),
      spawn(["--check", "gpudirect"]),
      spawn(["--check", "rdma"]),
      spawn(["--bogus"]),
    ]);
    expect(JSON.parse(json.stdout).picked.name).toBe("default");
    expect([json.code, strict.code, usable.code, unusable.code, unknown.code, wrong.code]).toEqual([
      0, 1, 0, 1, 2, 2,
    ]);
    expect(strict.stderr).toContain("ERR_ZAP_NOT_AVAILABLE");
    expect(unknown.stderr).toContain("there are gpudirect, dpdk, uma, default");
  });

  test("says where ZAP_LIB_DIR names no folder, and goes on", async () => {
    const { code, stdout, stderr } = await spawn(["--json"], { ZAP_LIB_DIR: "/no/such/folder" });
    expect(code).toBe(0);
    expect(stderr).toBe(
      "zap-info: ZAP_LIB_DIR names /no/such/folder, which is no folder; it is passed over\n",
    );
    const rows = (JSON.parse(stdout).transports as Probe[]).flatMap((each) => each.prerequisites);
    const shims = rows.filter((row) => row.name.startsWith("libzap_"));
    expect(shims.length).toBeGreaterThan(0);
    for (const row of shims)
      expect(row.seen).toEndWith("; ZAP_LIB_DIR names /no/such/folder, which is no folder");
    expect((await spawn([], { ZAP_LIB_DIR: import.meta.dir })).stderr).toBe("");
  });

  test("does not complain when its reader leaves early", async () => {
    const command = Bun.spawn(["sh", "-c", '"$0" "$1" | true', process.execPath, file], { stderr: "pipe" });
    expect(await new Response(command.stderr).text()).toBe("");
    expect(await command.exited).toBe(0);
  });
});
