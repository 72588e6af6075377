/** The `default` transport: the sockets wire over the heap. Always there. */
import { NotAvailableError } from "../errors/index.ts";
import type { Buffer } from "../memory/index.ts";
import { SocketsWire } from "../wire/index.ts";
import type { Capabilities, CloseReport, Selection, Transport, TransportOptions } from "./contract.ts";
import { DEFAULT_CAPS } from "./probes/default.ts";
import { WireTransport } from "./wire-transport.ts";

export async function openDefault(options: TransportOptions, selection: Selection): Promise<Transport> {
  return new DefaultTransport(await SocketsWire.open(options), selection);
}

class DefaultTransport extends WireTransport<SocketsWire> {
  readonly name = "default";
  readonly caps: Capabilities = DEFAULT_CAPS;
  readonly poolBytes = 0;

  allocBuffer(_size: number, _options?: { signal?: AbortSignal }): Promise<Buffer> {
    return Promise.reject(unmanaged());
  }

  tryAllocBuffer(_size: number): Buffer | null {
    throw unmanaged();
  }

  close(): Promise<CloseReport> {
    return this.wire.close();
  }
}

function unmanaged(): NotAvailableError {
  return new NotAvailableError(
    "the default transport has no managed memory: use the heap (new Uint8Array), or pick another transport",
  );
}
