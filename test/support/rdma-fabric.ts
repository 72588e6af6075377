/** The `gpudirect` transport on a host: doubles of CUDA and libibverbs in one process, and the real shims between them. */
import { dlopen } from "bun:ffi";
import { expect } from "bun:test";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { cText, openShim } from "../../lib/ffi/index.ts";
import { openGpudirect } from "../../lib/transport/gpudirect.ts";
import type { Transport, TransportOptions } from "../../lib/transport/index.ts";
import { DoubleHost, type Behaviour, type Vendor } from "./double-host.ts";
import { theNative } from "./native.ts";

const MIB = 2 ** 20;
const SELECTION = { name: "gpudirect", reason: "a test", tried: [] } as const;
/** The CUDA double's report of a device that was let go of with nothing left behind. */
const CLEAN = /^release (?!.*=[1-9]).*faults=0$/;
const IBVERBS = "libibverbs.so.1";

/** A host with both doubles. One for all tests: the double of libibverbs joins queue pairs of one copy of it. */
export class Fabric {
  readonly on: DoubleHost;
  readonly call;

  constructor(vendor: Vendor = "cuda", behaviour: Behaviour = {}, library = IBVERBS) {
    this.on = new DoubleHost(vendor, behaviour, {
      "/sys/class/infiniband/double0/ports/1/state": "4: ACTIVE\n",
      "/sys/class/infiniband/double1/ports/1/state": "4: ACTIVE\n",
      "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
    });
    const path = join(this.on.host.root, "usr/lib", IBVERBS);
    mkdirSync(dirname(path), { recursive: true });
    copyFileSync(join(theNative().doubles, library), path);
    this.call = dlopen(path, {
      ibverbs_double_set: { args: ["ptr", "ptr", "i64"], returns: "i32" },
      ibverbs_double_fail: { args: ["ptr", "ptr", "i32", "i32"], returns: "i32" },
      ibverbs_double_count: { args: ["ptr", "ptr"], returns: "i64" },
      ibverbs_double_faults: { args: ["ptr", "u32"], returns: "i64" },
      ibverbs_double_reset: { args: [], returns: "void" },
    }).symbols;
  }

  /** Both doubles are as new. */
  reset(behaviour: Behaviour = {}): void {
    this.call.ibverbs_double_reset();
    this.on.behave(behaviour);
  }

  set(name: string, value: number): void {
    expect(this.call.ibverbs_double_set(null, cText(name), BigInt(value))).toBe(0);
  }

  fail(call: string, number: number, after = 0): void {
    expect(this.call.ibverbs_double_fail(null, cText(call), number, after)).toBe(0);
  }

  count(what: string): number {
    return Number(this.call.ibverbs_double_count(null, cText(what)));
  }

  async open(
    nodeId: string,
    device: string,
    env: Record<string, string> = {},
    options: TransportOptions = {},
  ): Promise<Transport> {
    const host = {
      ...this.on.host,
      env: {
        ...this.on.host.env,
        ZAP_GPUDIRECT_DEVICE: device,
        ZAP_GPUDIRECT_REGION_BYTES: String(80 * MIB),
        ...env,
      },
    };
    const given = { nodeId, listen: "127.0.0.1:0", onEvent: () => {}, ...options };
    return openGpudirect(given, SELECTION, host);
  }

  /** Nothing is registered, mapped or open any more, and nobody did what one may not. */
  async expectNothingLeft(): Promise<void> {
    for (const what of ["regions", "domains", "contexts", "pairs", "windows", "queues"])
      expect([what, this.count(what)]).toEqual([what, 0]);
    const text = new Uint8Array(256);
    expect([
      Number(this.call.ibverbs_double_faults(text, text.length)),
      new TextDecoder().decode(text),
    ]).toEqual([0, new TextDecoder().decode(new Uint8Array(256))]);
    for (const shim of ["libzap_gpudirect", "libzap_uma_cuda", "libzap_uma_hip"] as const)
      expect([shim, (await openShim(shim, this.on.host.env, this.on.host)).call.live()]).toEqual([shim, 0]);
    for (const line of this.on.reported()) expect(line).toMatch(CLEAN);
  }
}
