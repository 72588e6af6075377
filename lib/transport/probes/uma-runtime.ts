/** Where the vendors' libraries lie that unified memory comes through. */
import { join } from "node:path";
import type { DeviceKindName, DeviceOptions } from "../../memory/index.ts";
import * as hosts from "../host.ts";
import type { Host } from "../host.ts";
import { LIBCUDA } from "./cuda.ts";
import { LIBHIP } from "./hip.ts";
import { METAL } from "./metal.ts";

/** How to open the device of one kind on this host, or null where the vendor's library is not installed. */
export function runtimeOf(host: Host, kind: DeviceKindName): DeviceOptions | null {
  if (kind === "metal") {
    // Neither is a file on a Mac of today: the system's loader has them under these names all the same.
    const [runtime, support] = [join(host.root, METAL, "Metal"), join(host.root, "/usr/lib/libobjc.A.dylib")];
    return { kind, runtime, support };
  }
  const runtime = hosts.library(host, kind === "cuda" ? LIBCUDA : `${LIBHIP}*`);
  return runtime === null ? null : { kind, runtime };
}
