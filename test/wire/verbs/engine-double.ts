/**
 * Stands in for the native side of a verbs node: the rings in plain memory, and queue pairs that are connected where both sides have taken
 * the other's offer. Messages move when somebody kicks or asks, by copying; a test can hold them back, spoil offers, and end flows.
 */
import { toArrayBuffer, type Pointer } from "bun:ffi";
import {
  GPUDIRECT_EVENT,
  GPUDIRECT_EVENT_BYTES,
  GPUDIRECT_EVENTS,
  GPUDIRECT_NODE,
  GPUDIRECT_OFFER,
  GPUDIRECT_OFFER_MAGIC,
  GPUDIRECT_SETTINGS,
  RING,
  RING_ENTRY,
  SHIM_STATUS,
  type GpudirectVerbs,
} from "../../../lib/ffi/index.ts";
import { ShimError } from "../../../lib/errors/index.ts";
import { heapKind, type Region } from "../../../lib/memory/index.ts";
import type { Waking } from "../../../lib/wire/index.ts";
import { NativeRing, PAGE } from "../native-ring.ts";

const SLOTS = 65_536;
const EVENT_SLOTS = 1_024;
const REASONS: Readonly<Record<number, string>> = {
  1: "finished",
  2: "aborted",
  64: "dead",
  66: "broken",
  68: "unreachable",
};

/** One queue pair. */
export interface PairDouble {
  readonly flow: number;
  readonly home: EngineDouble;
  /** What it was told of the far end; null before that. */
  remote: number | null;
  /** Numbers of messages that wait to be sent. */
  readonly waiting: { token: number; bytes: Uint8Array }[];
  over: boolean;
}

/** Every queue pair of the process, by its number. */
const pairs = new Map<number, PairDouble>();
let lastPair = 0;

export interface DoubleOptions {
  /** How many flows there may be. */
  readonly flows?: number;
  /** Changes an offer before it goes out. */
  readonly spoil?: (offer: DataView) => void;
  /** Why `flow_accept` fails; default: it does not. */
  readonly refuses?: string;
  /** Queue pairs that were accepted: `false` are never brought up, or cannot be, for this errno. */
  readonly rises?: false | number;
}

export class EngineDouble {
  readonly verbs: GpudirectVerbs;
  readonly waking: Waking;
  readonly options: DoubleOptions;
  state: "new" | "open" | "closed" = "new";
  freed = false;
  kicks = 0;
  /** Messages stay where they are. */
  held = false;
  readonly closedFlows: number[] = [];
  readonly abortedFlows: number[] = [];
  /** Those that are not over. */
  readonly flows = new Map<number, PairDouble>();
  poolOffset = 0;
  private readonly rings: Record<"handoff" | "returns" | "sends" | "dones", NativeRing> = {} as never;
  private events!: NativeRing;
  private address = 0;
  private memory!: ArrayBuffer;
  private region!: Region;
  private memoryOffset = 0;
  private poolBytes = 0;
  private bytes = 0;
  private next = 0;
  private nextToken = 1;
  private lastFlow = 0;
  private messagesIn = 0;
  private bytesIn = 0;
  private onWake: () => void = () => {};
  private wakePending = false;

  constructor(options: DoubleOptions = {}) {
    this.options = options;
    this.waking = async (_fd, onWake) => {
      this.onWake = onWake;
      return { terminate: () => (this.onWake = () => {}) };
    };
    const { flows: most = 256 } = options;
    this.verbs = {
      again: SHIM_STATUS.ZAP_E_AGAIN,
      limit: SHIM_STATUS.ZAP_E_LIMIT,
      check: (status, what) => {
        if (status < 0)
          throw new ShimError("double", "ZAP_E_INVALID", `${what} failed: ${options.refuses ?? status}`);
        return status;
      },
      call: {
        open: (settings) => (this.lay(settings as Uint8Array), 1),
        opened: (_, node) => this.fill(node as Uint8Array),
        close: () => this.close(),
        closed: () => 0,
        region_free: () => ((this.freed = true), this.memory.transfer(0), this.region.free(), 0),
        flow_begin: (_, offer) =>
          this.flows.size >= most ? SHIM_STATUS.ZAP_E_LIMIT : this.begin(offer as Uint8Array),
        flow_accept: (_, flow, offer) => this.accept(flow, offer as Uint8Array),
        flow_close: (_, flow) => this.closeFlow(flow),
        flow_abort: (_, flow) => (this.abortedFlows.push(flow), this.down(flow, 2), 0),
        kick: () => (this.kicks++, this.pump(), 0),
        stats_read: (_, stats) => this.count(stats as Uint8Array),
        name: (list, index, text) => this.name(list, index, text as Uint8Array),
      },
    };
  }

  private lay(settings: Uint8Array): void {
    const view = new DataView(settings.buffer);
    const area = (field: "eager_area" | "message_area" | "pool_area"): number =>
      Number(view.getBigUint64(GPUDIRECT_SETTINGS.at[field], true));
    const ring = RING.bytes + SLOTS * RING_ENTRY.bytes;
    const rings = 4 * ring + RING.bytes + EVENT_SLOTS * GPUDIRECT_EVENT_BYTES;
    this.memoryOffset = Math.ceil(rings / PAGE) * PAGE;
    this.poolOffset = this.memoryOffset + area("eager_area") + area("message_area");
    this.poolBytes = area("pool_area");
    this.bytes = this.poolOffset + this.poolBytes;
    this.region = heapKind().allocRegion(this.bytes);
    this.address = this.region.address;
    this.memory = toArrayBuffer(this.address as Pointer, 0, this.bytes);
    for (const [index, name] of (["handoff", "returns", "sends", "dones"] as const).entries())
      this.rings[name] = new NativeRing(this.memory, index * ring, SLOTS, RING_ENTRY.bytes, 0n);
    this.events = new NativeRing(this.memory, 4 * ring, EVENT_SLOTS, GPUDIRECT_EVENT_BYTES, 0n);
    this.sleep();
  }

  /** As a node that sleeps always does. */
  private sleep(): void {
    for (const name of ["sends", "returns"] as const) this.rings[name].arm();
  }

  private fill(node: Uint8Array): number {
    const view = new DataView(node.buffer);
    const { at } = GPUDIRECT_NODE;
    view.setBigUint64(at.address, BigInt(this.address), true);
    view.setBigUint64(at.bytes, BigInt(this.bytes), true);
    for (const name of ["handoff", "returns", "sends", "dones"] as const)
      view.setUint32(at[`${name}_offset`], this.rings[name].offset, true);
    view.setUint32(at.events_offset, this.events.offset, true);
    view.setBigUint64(at.eager_offset, BigInt(this.memoryOffset), true);
    view.setBigUint64(at.pool_offset, BigInt(this.poolOffset), true);
    view.setBigUint64(at.pool_bytes, BigInt(this.poolBytes), true);
    view.setBigUint64(at.registered_bytes, BigInt(this.bytes), true);
    view.setInt32(at.region, 7, true);
    view.setInt32(at.wake_fd, -1, true);
    view.setUint32(at.method, 3, true);
    view.setUint32(at.port, 1, true);
    view.setUint32(at.ethernet, 1, true);
    node.set(new TextEncoder().encode("double0"), at.device);
    this.state = "open";
    return SHIM_STATUS.ZAP_OK;
  }

  private close(): number {
    this.state = "closed";
    for (const flow of [...this.flows.keys()]) this.end(flow);
    return SHIM_STATUS.ZAP_OK;
  }

  private begin(memory: Uint8Array): number {
    const flow = 0x10000 * ++this.lastFlow;
    const number = ++lastPair;
    pairs.set(number, this.newPair(flow));
    const view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
    const { at } = GPUDIRECT_OFFER;
    view.setUint32(at.magic, GPUDIRECT_OFFER_MAGIC, true);
    view.setUint32(at.queue_pair, number, true);
    view.setUint32(at.mtu, 1024, true);
    view.setUint32(at.ethernet, 1, true);
    view.setUint32(at.eager_bytes, 8192, true);
    view.setUint32(at.receives, 64, true);
    view.setUint32(at.message_bytes, 2 ** 20, true);
    view.setUint32(at.reads, 4, true);
    this.options.spoil?.(view);
    return flow;
  }

  private newPair(flow: number): PairDouble {
    const pair: PairDouble = { flow, home: this, remote: null, waiting: [], over: false };
    this.flows.set(flow, pair);
    return pair;
  }

  private accept(flow: number, offer: Uint8Array): number {
    const pair = this.flows.get(flow);
    if (pair === undefined) return SHIM_STATUS.ZAP_E_HANDLE;
    if (this.options.refuses !== undefined) {
      this.end(flow);
      return SHIM_STATUS.ZAP_E_INVALID;
    }
    const view = new DataView(offer.buffer, offer.byteOffset, offer.byteLength);
    const { rises } = this.options;
    if (typeof rises === "number") this.down(flow, 68, 0, rises);
    if (rises !== undefined) return SHIM_STATUS.ZAP_OK;
    pair.remote = view.getUint32(GPUDIRECT_OFFER.at.queue_pair, true);
    this.event(GPUDIRECT_EVENTS.up, (event) => event.setUint32(GPUDIRECT_EVENT.at.flow, flow, true));
    return SHIM_STATUS.ZAP_OK;
  }

  /** The queue pair is gone. Returns how many messages it had not delivered. */
  private end(flow: number): number {
    const pair = this.flows.get(flow);
    if (pair === undefined) return 0;
    this.flows.delete(flow);
    pair.over = true;
    const failed = pair.waiting.splice(0);
    for (const { token } of failed) this.done(token, false);
    return failed.length;
  }

  private closeFlow(flow: number): number {
    this.closedFlows.push(flow);
    this.pump();
    const pair = this.flows.get(flow);
    if (pair === undefined) return SHIM_STATUS.ZAP_OK;
    const far = farEnd(pair);
    this.down(flow, 1);
    if (far !== null) far.home.down(far.flow, 1);
    return SHIM_STATUS.ZAP_OK;
  }

  private count(memory: Uint8Array): number {
    const view = new DataView(memory.buffer);
    // messages_in and bytes_in
    view.setBigUint64(64, BigInt(this.messagesIn), true);
    view.setBigUint64(72, BigInt(this.bytesIn), true);
    return SHIM_STATUS.ZAP_OK;
  }

  private name(list: number, index: number, text: Uint8Array): number {
    const name = list === 1 ? (REASONS[index] ?? "") : list === 2 && index === 12 ? "retry-exceeded" : "";
    return new TextEncoder().encodeInto(`${name}\0`, text).written - 1;
  }

  /** What a producer does behind its tail. */
  private wake(ring: NativeRing): void {
    if (!ring.armed) return;
    ring.disarm();
    if (this.wakePending) return;
    this.wakePending = true;
    queueMicrotask(() => {
      this.wakePending = false;
      this.onWake();
    });
  }

  // ---- what happens

  /** Takes what was handed over, and delivers what can be. */
  pump(): void {
    if (this.state !== "open") return;
    this.rings.returns.consume(() => {});
    const taken = this.rings.sends.consume((entry) => ({
      flow: entry.getUint32(RING_ENTRY.at.peer, true),
      token: entry.getUint32(RING_ENTRY.at.token, true),
      at: Number(entry.getBigUint64(RING_ENTRY.at.address, true)) - this.address,
      length: entry.getUint32(RING_ENTRY.at.length, true),
    }));
    for (const { flow, token, at, length } of taken) {
      if (at < this.memoryOffset || at + length > this.bytes)
        throw new Error("a message outside of the region");
      const pair = this.flows.get(flow);
      const bytes = new Uint8Array(this.memory.slice(at, at + length));
      if (pair === undefined) this.done(token, false);
      else pair.waiting.push({ token, bytes });
    }
    if (!this.held) for (const pair of this.flows.values()) this.deliver(pair);
    this.sleep();
  }

  private deliver(pair: PairDouble): void {
    const far = farEnd(pair);
    if (far === null || far.home.state !== "open") return;
    for (const { token, bytes } of pair.waiting.splice(0)) {
      far.home.receive(far.flow, bytes);
      this.done(token, true);
    }
  }

  /** A message has come on a flow. */
  receive(flow: number, message: Uint8Array): void {
    const room = this.poolOffset - this.memoryOffset;
    if (this.next + message.length > room) this.next = 0;
    const at = this.memoryOffset + this.next;
    this.next += Math.ceil(message.length / 64) * 64;
    new Uint8Array(this.memory).set(message, at);
    this.messagesIn++;
    this.bytesIn += message.length;
    this.rings.handoff.produce((entry) => {
      entry.setBigUint64(RING_ENTRY.at.address, BigInt(this.address + at), true);
      entry.setUint32(RING_ENTRY.at.length, message.length, true);
      entry.setUint32(RING_ENTRY.at.peer, flow, true);
      entry.setUint32(RING_ENTRY.at.token, this.nextToken++, true);
    });
    this.wake(this.rings.handoff);
  }

  private done(token: number, delivered: boolean): void {
    this.rings.dones.produce((entry) => {
      entry.setUint32(RING_ENTRY.at.token, token, true);
      entry.setUint32(RING_ENTRY.at.length, delivered ? 1 : 0, true);
    });
    this.wake(this.rings.dones);
  }

  /** A flow ends; what it had not delivered comes back. */
  down(flow: number, reason: number, status = 0, error = 0): void {
    if (this.state !== "open" || !this.flows.has(flow)) return;
    const undelivered = this.end(flow);
    this.event(GPUDIRECT_EVENTS.down, (view) => {
      view.setUint32(GPUDIRECT_EVENT.at.flow, flow, true);
      view.setUint32(GPUDIRECT_EVENT.at.reason, reason, true);
      view.setUint32(GPUDIRECT_EVENT.at.status, status, true);
      view.setUint32(GPUDIRECT_EVENT.at.error, error, true);
      view.setUint32(GPUDIRECT_EVENT.at.undelivered, undelivered, true);
    });
  }

  /** The port goes down or comes up. */
  port(up: boolean): void {
    this.event(GPUDIRECT_EVENTS.port, (view) => view.setUint32(GPUDIRECT_EVENT.at.reason, up ? 1 : 0, true));
  }

  private event(kind: number, write: (view: DataView) => void): void {
    this.events.produce((entry) => {
      new Uint8Array(entry.buffer, entry.byteOffset, GPUDIRECT_EVENT_BYTES).fill(0);
      entry.setUint32(GPUDIRECT_EVENT.at.kind, kind, true);
      entry.setBigUint64(GPUDIRECT_EVENT.at.messages, this.rings.handoff.tail, true);
      write(entry);
    });
    this.wake(this.events);
  }

  /** The flows that are connected with a far end which is so with them. */
  get connected(): number[] {
    return [...this.flows.values()].filter((pair) => farEnd(pair) !== null).map(({ flow }) => flow);
  }
}

/** Null where the two are not connected with each other. */
function farEnd(pair: PairDouble): PairDouble | null {
  const far = pair.remote === null ? undefined : pairs.get(pair.remote);
  if (far === undefined || far.over || far.remote === null) return null;
  return pairs.get(far.remote) === pair ? far : null;
}
