/** The library itself, through its public entry: `send` in a plain loop, and `for await` over what arrives. */
import { type Envelope, type Transport, type TransportEvent, pick } from "../../lib/index.ts";
import type { Link, Next, Peer, Take } from "../peer.ts";

/** Whatever the transport reports as lost or turned away fails the run. */
export function onEvent(event: TransportEvent): void {
  if (event.type !== "error") return;
  queueMicrotask(() => {
    throw event.error;
  });
}

class ZapLink implements Link {
  readonly transport: Transport;
  readonly peer: string;

  constructor(transport: Transport, peer: string) {
    this.transport = transport;
    this.peer = peer;
  }

  async flood(next: Next): Promise<void> {
    const { transport, peer } = this;
    for (let message = next(); message !== null; message = next()) await transport.send(peer, message);
  }

  async pingPong(next: Next, back: Take): Promise<void> {
    const { transport, peer } = this;
    for (let message = next(); message !== null; message = next()) {
      await transport.send(peer, message);
      const envelope = await transport.recv();
      back(envelope.message);
      envelope.release();
    }
  }
}

/** The same with the calls that wait only where there is something to wait for. */
class TryLink extends ZapLink {
  override async flood(next: Next): Promise<void> {
    const { transport, peer } = this;
    for (let message = next(); message !== null; message = next()) {
      if (!transport.trySend(peer, message)) await transport.send(peer, message);
    }
  }
}

async function serve(transport: Transport, take: Take, echo: boolean): Promise<void> {
  for await (const envelope of transport) {
    take(envelope.message);
    if (echo) await transport.send(envelope.peer, envelope.message);
    envelope.release();
  }
}

async function serveTrying(transport: Transport, take: Take, echo: boolean): Promise<void> {
  for (;;) {
    let envelope: Envelope | null = await transport.recv();
    for (; envelope !== null; envelope = transport.tryRecv()) {
      const { message, peer } = envelope;
      take(message);
      if (echo && !transport.trySend(peer, message)) await transport.send(peer, message);
      envelope.release();
    }
  }
}

/** For a transport that was picked elsewhere. */
export const served = (transport: Transport, take: Take, echo: boolean): void =>
  void serve(transport, take, echo);
export const linked = (transport: Transport, peer: string): Link => new ZapLink(transport, peer);

function peerOf(serving: typeof serve, LinkClass: typeof ZapLink): Peer {
  return {
    async listen(take, echo) {
      const transport = await pick("default", { nodeId: "bench-receiver", listen: "127.0.0.1:0", onEvent });
      void serving(transport, take, echo);
      return transport.addresses[0]!;
    },
    async connect(address) {
      const transport = await pick("default", { nodeId: "bench-sender", onEvent });
      return new LinkClass(transport, await transport.connect(address));
    },
  };
}

export const peer = peerOf(serve, ZapLink);
export const peerTrying = peerOf(serveTrying, TryLink);
