/** What the node counts, in the contract's words. */
import { DPDK_QUEUE, DPDK_STATS } from "../../ffi/index.ts";
import type { PortStats, QueueStats } from "../contract.ts";
import type { Engine } from "./engine.ts";
import { macText } from "./ip.ts";

/** The first so many verdicts on frames are good ones: a datagram, ARP, neighbour discovery. */
const GOOD_VERDICTS = 3;

export interface NodeStats {
  readonly messagesIn: number;
  readonly bytesIn: number;
  readonly bytesCopied: number;
  readonly queuedMessages: number;
  readonly queuedBytes: number;
  readonly candidates: number;
  /** By layer and reason, such as `frame.magic`; those above 0. */
  readonly drops: Readonly<Record<string, number>>;
  readonly port: PortStats;
}

export class StatsReader {
  private readonly engine: Engine;
  private readonly device: string;
  private readonly frame: readonly string[];
  private readonly datagram: readonly string[];
  private readonly message: readonly string[];
  private readonly memory = new Uint8Array(DPDK_STATS.bytes);
  private readonly view = new DataView(this.memory.buffer);
  private last: NodeStats | null = null;

  constructor(engine: Engine, device: string) {
    this.engine = engine;
    this.device = device;
    this.frame = engine.names("frame");
    this.datagram = engine.names("datagram");
    this.message = engine.names("message");
  }

  /** With `open` false what was last read: the node is gone. */
  read(open: boolean): NodeStats {
    if (!open && this.last !== null) return this.last;
    this.engine.readStats(this.memory);
    const { at } = DPDK_STATS;
    const drops: Record<string, number> = {};
    this.count(drops, "frame", this.frame, at.verdicts, GOOD_VERDICTS);
    this.count(drops, "datagram", this.datagram, at.datagram_drops, 0);
    this.count(drops, "message", this.message, at.message_drops, 0);
    return (this.last = {
      messagesIn: this.u64("messages_in"),
      bytesIn: this.u64("bytes_in"),
      bytesCopied: this.u64("bytes_copied"),
      queuedMessages: this.u64("queued_messages"),
      queuedBytes: this.u64("queued_bytes"),
      candidates: this.view.getUint32(at.candidates, true),
      drops,
      port: this.port(),
    });
  }

  private port(): PortStats {
    const { info } = this.engine;
    const { at } = DPDK_STATS;
    return {
      driver: info.driver,
      device: this.device,
      mtu: info.mtu,
      mac: macText(info.mac),
      link: this.view.getUint32(at.link, true) !== 0,
      mbit: this.view.getUint32(at.mbit, true),
      missed: this.u64("missed"),
      noBuffers: this.u64("no_buffers"),
      errors: this.u64("device_errors"),
      buffersFree: this.view.getUint32(at.buffers_free, true),
      segmentsOut: this.u64("segments_out"),
      segmentsAgain: this.u64("segments_again"),
      notSent: this.u64("not_sent"),
      queues: Array.from({ length: info.queues }, (_, number) => this.queue(number)),
    };
  }

  private queue(number: number): QueueStats {
    const memory = new Uint8Array(DPDK_QUEUE.bytes);
    this.engine.readQueue(number, memory);
    const view = new DataView(memory.buffer);
    const { at } = DPDK_QUEUE;
    const u64 = (field: keyof typeof at): number => Number(view.getBigUint64(at[field], true));
    return {
      packetsIn: u64("packets_in"),
      packetsOut: u64("packets_out"),
      bytesIn: u64("bytes_in"),
      bytesOut: u64("bytes_out"),
      polls: u64("polls"),
      emptyPolls: u64("empty_polls"),
      idles: u64("idles"),
      noNeighbour: u64("no_neighbour"),
      noBuffer: u64("no_buffer"),
      full: u64("full"),
    };
  }

  private u64(field: keyof typeof DPDK_STATS.at): number {
    return Number(this.view.getBigUint64(DPDK_STATS.at[field], true));
  }

  private count(
    drops: Record<string, number>,
    layer: string,
    names: readonly string[],
    at: number,
    first: number,
  ): void {
    names.slice(first).forEach((name, index) => {
      const drop = Number(this.view.getBigUint64(at + 8 * (first + index), true));
      if (drop > 0) drops[`${layer}.${name}`] = drop;
    });
  }
}
