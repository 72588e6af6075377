/**
 * The `uma` transport over page-aligned memory of the heap: everything but the device. How a socket is read does not depend on who
 * else can read the memory.
 */
import { openShim, pollerVerbs, type Shim } from "../../lib/ffi/index.ts";
import { heapKind } from "../../lib/memory/index.ts";
import type { Transport, TransportOptions } from "../../lib/transport/index.ts";
import { openOver } from "../../lib/transport/uma.ts";
import { theNative } from "./native.ts";

const SELECTION = { name: "uma", reason: "a test", tried: [] } as const;

export async function openOverSlabs(
  options: TransportOptions,
  settings = { poolBytes: 256 * 1024 * 1024, debug: false },
): Promise<Transport> {
  const shim = await openCudaShim();
  return openOver(heapKind(), pollerVerbs(shim), settings, options, SELECTION);
}

/** The shim that was built for the tests. */
export function openCudaShim(): Promise<Shim<"libzap_uma_cuda">> {
  return openShim("libzap_uma_cuda", { ZAP_LIB_DIR: theNative().shims });
}
