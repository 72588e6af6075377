/** The two receivers that are compared. */
import { openShim, pollerVerbs } from "../../lib/ffi/index.ts";
import { heapKind } from "../../lib/memory/index.ts";
import { pick, type Transport } from "../../lib/transport/index.ts";
import { openOver } from "../../lib/transport/uma.ts";

const OPTIONS = { nodeId: "receiver", listen: "127.0.0.1:0" };

/**
 * `default` is the transport of that name. `slabs` is what `uma` receives with, over page-aligned memory of the heap: how a socket
 * is read does not depend on who else can read the memory.
 */
export async function openReceiver(memory: string): Promise<Transport> {
  if (memory === "default") return pick("default", { ...OPTIONS, env: { ZAP_TRANSPORT_QUIET: "1" } });
  const shim = await openShim("libzap_uma_cuda");
  const selection = { name: "uma", reason: "a measurement", tried: [] } as const;
  const settings = { poolBytes: 256 * 1024 * 1024, debug: false };
  return openOver(heapKind(), pollerVerbs(shim), settings, OPTIONS, selection);
}
