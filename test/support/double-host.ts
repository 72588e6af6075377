/** Made-up hosts whose GPU is a double of the vendor's library: what probes and devices see there is what `double.conf` says. */
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { platformHere } from "../../lib/ffi/index.ts";
import type { Host } from "../../lib/transport/host.ts";
import { amd, madeUpHost, nvidia, type Files } from "../probe/made-up-host.ts";
import { theNative } from "./native.ts";

export type Vendor = "cuda" | "hip" | "metal";
/** Lines of a `double.conf`. */
export type Behaviour = Readonly<Record<string, string | number>>;

interface Machine {
  /** What the host has beside the library. */
  readonly files: Files;
  readonly differences: Partial<Host>;
  /** Where each double goes. The first has the behaviour. */
  readonly libraries: Readonly<Record<string, string>>;
}

const METAL = "/System/Library/Frameworks/Metal.framework";

const MACHINES: Readonly<Record<Vendor, Machine>> = {
  cuda: {
    files: without(nvidia, "libcuda.so.1"),
    differences: platformHere(),
    libraries: { "libcuda.so.1": "/usr/lib/libcuda.so.1" },
  },
  hip: {
    files: without(amd, "libamdhip64.so"),
    differences: platformHere(),
    libraries: { "libamdhip64.so": "/opt/rocm/lib/libamdhip64.so.6" },
  },
  metal: {
    files: {},
    differences: { platform: "darwin", arch: "arm64", cpu: "Apple M4" },
    libraries: { Metal: `${METAL}/Metal`, "libobjc.A.dylib": "/usr/lib/libobjc.A.dylib" },
  },
};

/** A host with the real shims, and a double for the vendor's library. */
export class DoubleHost {
  readonly host: Host;
  private readonly folder: string;
  private readonly report: string;

  constructor(vendor: Vendor, behaviour: Behaviour = {}, files: Files = {}, env: Host["env"] = {}) {
    const { files: machine, differences, libraries } = MACHINES[vendor];
    const { shims, doubles } = theNative();
    const made = madeUpHost({ ...machine, ...files }, differences);
    for (const [file, at] of Object.entries(libraries)) {
      mkdirSync(dirname(join(made.root, at)), { recursive: true });
      copyFileSync(join(doubles, file), join(made.root, at));
    }
    this.folder = dirname(join(made.root, Object.values(libraries)[0]!));
    this.report = join(made.root, "report");
    // A library has the name that its platform gives it, and here the contents of this one.
    const folder = join(made.root, "shims");
    mkdirSync(folder);
    for (const name of [
      "libzap_uma_cuda",
      "libzap_uma_hip",
      "libzap_uma_metal",
      "libzap_dpdk",
      "libzap_gpudirect",
    ]) {
      const suffix = made.platform === "darwin" ? "dylib" : "so";
      copyFileSync(join(shims, `${name}.so`), join(folder, `${name}.${suffix}`));
    }
    this.host = { ...made, env: { ZAP_LIB_DIR: folder, ...env } };
    this.behave(behaviour);
  }

  /** From its next start on, the double behaves so. */
  behave(behaviour: Behaviour): void {
    const lines = Object.entries({ report: this.report, ...behaviour }).map(
      ([name, value]) => `${name}=${value}\n`,
    );
    writeFileSync(join(this.folder, "double.conf"), lines.join(""));
    rmSync(this.report, { force: true });
  }

  /** What the double has reported since: what was left behind, and every misuse. */
  reported(): string[] {
    if (!existsSync(this.report)) return [];
    return readFileSync(this.report, "utf8")
      .split("\n")
      .filter((line) => line !== "");
  }
}

function without(files: Files, name: string): Files {
  return Object.fromEntries(Object.entries(files).filter(([path]) => !path.includes(name)));
}
