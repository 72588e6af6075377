/**
 * The `uma` transport over page-aligned memory of the heap: everything but the device. How a socket is read does not depend on who
 * else can read the memory.
 */
import { openShim, pollerVerbs } from "../../lib/ffi/index.ts";
import { heapKind } from "../../lib/memory/index.ts";
import type { Transport, TransportOptions } from "../../lib/transport/index.ts";
import { openOver } from "../../lib/transport/uma.ts";

const SELECTION = { name: "uma", reason: "a test", tried: [] } as const;

export async function openOverSlabs(
  options: TransportOptions,
  settings = { poolBytes: 256 * 1024 * 1024, debug: false },
): Promise<Transport> {
  const shim = await openShim("libzap_uma_cuda");
  return openOver(heapKind(), pollerVerbs(shim), settings, options, SELECTION);
}
