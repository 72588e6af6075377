/** What the node counts, in the contract's words. */
import { GPUDIRECT_STATS } from "../../ffi/index.ts";
import type { RdmaStats } from "../contract.ts";
import type { VerbsEngine } from "./engine.ts";
import { PortCounters } from "./port-counters.ts";

/** What the node knows; the rest is the wire's. */
type NodeRdmaStats = Omit<RdmaStats, "bytesCopiedOut">;

export interface NodeStats {
  readonly messagesIn: number;
  readonly bytesIn: number;
  readonly queuedMessages: number;
  readonly queuedBytes: number;
  /** Such as `message.magic`; those above 0. */
  readonly drops: Readonly<Record<string, number>>;
  readonly rdma: NodeRdmaStats;
}

export class StatsReader {
  private readonly engine: VerbsEngine;
  private readonly message: readonly string[];
  private readonly memory = new Uint8Array(GPUDIRECT_STATS.bytes);
  private readonly view = new DataView(this.memory.buffer);
  private readonly port: PortCounters;
  private last: NodeStats | null = null;

  constructor(engine: VerbsEngine) {
    this.engine = engine;
    this.message = engine.names("message");
    this.port = new PortCounters(engine.info.device, engine.info.port);
  }

  /** With `open` false what was last read: the node is gone. */
  read(open: boolean, portUp: boolean): NodeStats {
    if (!open && this.last !== null) return this.last;
    this.engine.readStats(this.memory);
    const drops: Record<string, number> = {};
    this.message.forEach((name, index) => {
      const drop = Number(this.view.getBigUint64(GPUDIRECT_STATS.at.message_drops + 8 * index, true));
      if (drop > 0) drops[`message.${name}`] = drop;
    });
    return (this.last = {
      messagesIn: this.u64("messages_in"),
      bytesIn: this.u64("bytes_in"),
      queuedMessages: this.u64("queued_messages"),
      queuedBytes: this.u64("queued_bytes"),
      drops,
      rdma: this.rdma(portUp),
    });
  }

  private rdma(portUp: boolean): NodeRdmaStats {
    const { info } = this.engine;
    const { at } = GPUDIRECT_STATS;
    return {
      device: info.device,
      port: info.port,
      portUp,
      gidIndex: info.gidIndex,
      link: info.ethernet ? "RoCE" : "InfiniBand",
      mtu: info.mtu,
      firmware: info.firmware,
      method: info.method,
      registeredBytes: info.registeredBytes,
      windows: info.windows,
      connections: this.view.getUint32(at.flows, true),
      sends: this.u64("sends"),
      inlineSends: this.u64("inline_sends"),
      reads: this.u64("reads"),
      receives: this.u64("receives"),
      completions: this.u64("completions"),
      polls: this.u64("polls"),
      sleeps: this.u64("sleeps"),
      stalls: this.u64("stalls"),
      failures: this.u64("failures"),
      retriesExceeded: this.u64("retries_exceeded"),
      rnrExceeded: this.u64("rnr_exceeded"),
      retries: this.port.read("retries"),
      rnrEvents: this.port.read("rnrEvents"),
      portEvents: this.u64("port_events"),
      buffersFree: this.view.getUint32(at.free_slabs, true),
      heldBytes: this.u64("held_bytes"),
    };
  }

  private u64(field: keyof typeof GPUDIRECT_STATS.at): number {
    return Number(this.view.getBigUint64(GPUDIRECT_STATS.at[field], true));
  }
}
