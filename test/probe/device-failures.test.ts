import { afterAll, describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openShim } from "../../lib/ffi/index.ts";
import { shimOf } from "../../lib/memory/index.ts";
import type { Prerequisite, Probe } from "../../lib/transport/contract.ts";
import { probeRows } from "../../lib/transport/probe.ts";
import { probeUma } from "../../lib/transport/probes/index.ts";
import { resolveSelection, whyNot } from "../../lib/transport/resolve.ts";
import { DoubleHost, type Behaviour, type Vendor } from "../support/double-host.ts";
import { noNative, theNative } from "../support/native.ts";
import { forgetHosts, madeUpHost, nvidia } from "./made-up-host.ts";

afterAll(forgetHosts);

const MILLIS = "150";

function missing({ prerequisites }: Probe): Prerequisite[] {
  return prerequisites.filter(({ met }) => !met);
}

interface Failure {
  readonly name: string;
  readonly behaviour: Behaviour;
  /** The one row that is missing, and what it must say. */
  readonly row: string;
  readonly seen: RegExp;
}

const FAILURES: Readonly<Record<Vendor, readonly Failure[]>> = {
  cuda: [
    { name: "no device", behaviour: { devices: 0 }, row: "CUDA driver", seen: /CUDA_ERROR_NO_DEVICE/ },
    { name: "out of memory", behaviour: { memory: 1 }, row: "unified memory", seen: /OUT_OF_MEMORY/ },
    { name: "driver too old", behaviour: { driver: 10020 }, row: "CUDA driver", seen: /CUDA 10\.2, too old/ },
    {
      name: "driver that fails",
      behaviour: { "fail.cuDevicePrimaryCtxRetain": 999 },
      row: "CUDA device",
      seen: /cuDevicePrimaryCtxRetain failed/,
    },
    { name: "a start that hangs", behaviour: { "hang.cuInit": 1 }, row: "driver", seen: /^cuInit did not/ },
    {
      name: "a call that hangs",
      behaviour: { "hang.cuDevicePrimaryCtxRetain": 1 },
      row: "driver",
      seen: /^cuDevicePrimaryCtxRetain did not/,
    },
  ],
  hip: [
    { name: "no device", behaviour: { devices: 0 }, row: "HIP runtime", seen: /hipErrorNoDevice/ },
    { name: "out of memory", behaviour: { memory: 1 }, row: "unified memory", seen: /OutOfMemory/ },
    {
      name: "runtime too old",
      behaviour: { runtime: 40_000_000 },
      row: "HIP runtime",
      seen: /older than ROCm/,
    },
    { name: "a start that hangs", behaviour: { "hang.hipInit": 1 }, row: "driver", seen: /^hipInit did not/ },
    {
      name: "a call that hangs",
      behaviour: { "hang.hipMallocManaged": 1 },
      row: "driver",
      seen: /^hipMallocManaged did not/,
    },
  ],
  metal: [
    { name: "no device", behaviour: { devices: 0 }, row: "Metal device", seen: /gave no device/ },
    {
      name: "out of memory",
      behaviour: { memory: 1 },
      row: "unified memory",
      seen: /4096 bytes|out of memory/,
    },
    {
      name: "memory of its own",
      behaviour: { unified: 0 },
      row: "unified memory",
      seen: /hasUnifiedMemory is NO/,
    },
    {
      name: "a start that hangs",
      behaviour: { "hang.MTLCreateSystemDefaultDevice": 1 },
      row: "driver",
      seen: /^MTLCreateSystemDefaultDevice did not/,
    },
  ],
};

describe.skipIf(noNative || process.platform !== "linux")("uma is not usable with", () => {
  for (const vendor of ["cuda", "hip", "metal"] as const) {
    for (const { name, behaviour, row, seen } of FAILURES[vendor]) {
      test(`${vendor}: ${name}; one row says so, and nothing is left behind`, async () => {
        const on = new DoubleHost(vendor, behaviour, {}, { ZAP_DEVICE_MILLIS: MILLIS });
        const probes = await probeRows(on.host);
        const uma = probes.find((probe) => probe.name === "uma")!;
        expect(uma).toMatchObject({ built: true, available: false, caps: null, memory: vendor });
        const [only, ...others] = missing(uma);
        expect([only?.name, others]).toEqual([row, []]);
        expect(only?.seen).toMatch(seen);
        expect(only?.fix).toMatch(/\.$/);
        const { name: chosen, tried } = await resolveSelection(undefined, { env: {}, probes });
        expect(chosen).toBe("default");
        expect(tried.find((each) => each.name === "uma")?.reason).toBe(whyNot(uma));

        const { call } = await openShim(shimOf(vendor), on.host.env, on.host);
        expect(call.live()).toBe(0);
        expect(on.reported().filter((line) => !/^release (?!.*=[1-9]).*faults=0$/.test(line))).toEqual([]);

        const healthy = await probeUma(new DoubleHost(vendor).host);
        expect(missing(healthy)).toEqual([]);
      });
    }
  }

  test("a device number that is none, or not there", async () => {
    const wrong = await probeUma(new DoubleHost("cuda", {}, {}, { ZAP_CUDA_DEVICE: "first" }).host);
    expect(missing(wrong)).toMatchObject([
      { name: "settings", seen: 'ZAP_CUDA_DEVICE is "first"; it takes a decimal number from 0 to 1023' },
    ]);
    const third = await probeUma(new DoubleHost("cuda", { devices: 2 }, {}, { ZAP_CUDA_DEVICE: "2" }).host);
    expect(missing(third)).toMatchObject([
      { name: "CUDA device", seen: expect.stringContaining("GPU 2 is not there") },
    ]);
    const second = await probeUma(new DoubleHost("cuda", { devices: 2 }, {}, { ZAP_CUDA_DEVICE: "1" }).host);
    expect(second.available).toBe(true);
  });

  test("a time that is none", async () => {
    const wrong = await probeUma(new DoubleHost("hip", {}, {}, { ZAP_DEVICE_MILLIS: "soon" }).host);
    expect(missing(wrong)).toMatchObject([
      { name: "settings", seen: expect.stringContaining("ZAP_DEVICE_MILLIS") },
    ]);
  });

  test("a vendor's library that was cut off: it is not loaded", async () => {
    const whole = readFileSync(join(theNative().doubles, "libcuda.so.1"));
    for (const length of [200, 1_000, 4_096, 8_192, 12_288].filter((each) => each < whole.length)) {
      const on = new DoubleHost("cuda");
      writeFileSync(join(on.host.root, "usr/lib/libcuda.so.1"), whole.subarray(0, length));
      const [only, ...others] = missing(await probeUma(on.host));
      expect([only?.name, others]).toEqual(["libcuda.so.1", []]);
      expect(only?.seen).toContain(`is cut off: ${length} bytes of at least `);
      expect(only?.fix).toStartWith("Install it anew:\n");
    }
  });

  test("a namesake of a vendor's library, which the shim refuses", async () => {
    const stub = madeUpHost(nvidia, { env: { ZAP_LIB_DIR: theNative().shims } });
    if (process.arch === "x64") {
      expect(missing(await probeUma(stub)).map(({ name }) => name)).toEqual(["libcuda.so.1"]);
    }
    const on = new DoubleHost("cuda");
    const other = readFileSync(join(theNative().doubles, "libamdhip64.so"));
    writeFileSync(join(on.host.root, "usr/lib/libcuda.so.1"), other);
    const [only] = missing(await probeUma(on.host));
    expect(only).toMatchObject({ name: "libcuda.so.1", seen: expect.stringContaining("cuInit") });
  });

  test("a driver that hangs, and the process ends all the same", async () => {
    const on = new DoubleHost("cuda", { "hang.cuInit": 1 }, {}, { ZAP_DEVICE_MILLIS: "100" });
    const script = `
      import { probeUma } from ${JSON.stringify(join(import.meta.dir, "../../lib/transport/probes/index.ts"))};
      const row = await probeUma(${JSON.stringify(on.host)});
      console.log(row.prerequisites.filter((each) => !each.met).map((each) => each.name).join());`;
    const child = Bun.spawn([process.execPath, "-e", script], {
      stdout: "pipe",
      stderr: "pipe",
      timeout: 20_000,
    });
    const [out, err, code] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    expect({ out, err, code, signal: child.signalCode }).toEqual({
      out: "driver\n",
      err: "",
      code: 0,
      signal: null,
    });
  });
});
