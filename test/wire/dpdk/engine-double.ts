/**
 * Stands in for the native side of the rings: plain memory laid out as `zap_ring.h` says, and verbs that only write down what they were
 * asked. The test plays the network. It uses whole 64-bit counts everywhere, unlike what it tests.
 */
import { toArrayBuffer, type Pointer } from "bun:ffi";
import {
  DPDK_DIAL,
  DPDK_EVENT,
  DPDK_EVENT_BYTES,
  DPDK_EVENTS,
  DPDK_NODE,
  DPDK_SETTINGS,
  RING,
  RING_ENTRY,
  SHIM_STATUS,
  readText,
  type DpdkVerbs,
} from "../../../lib/ffi/index.ts";
import { heapKind, type Region } from "../../../lib/memory/index.ts";
import type { Limits, WireEvent, WireOptions } from "../../../lib/wire/index.ts";
import {
  DpdkWire,
  dpdkEnvironment,
  Engine,
  resolveDpdkOptions,
  type Waking,
} from "../../../lib/wire/index.ts";
import { ipBytes } from "../../../lib/wire/dpdk/ip.ts";
import { areaKind, NativeRing, PAGE, turns, type Sent } from "../native-ring.ts";

export { turns } from "../native-ring.ts";

const EVENT_SLOTS = 1024;

export interface DoubleOptions {
  readonly slots?: number;
  /** What all counts start at. */
  readonly startAt?: bigint;
  /** Answers `flow_close` with a DOWN of reason 1. Default: yes. */
  readonly hangsUp?: boolean;
}

export class EngineDouble {
  handoff!: NativeRing;
  returns!: NativeRing;
  sends!: NativeRing;
  dones!: NativeRing;
  events!: NativeRing;
  readonly dials: { number: number; id: string; port: number }[] = [];
  readonly cancelled: number[] = [];
  readonly closedFlows: number[] = [];
  readonly verbs: DpdkVerbs;
  readonly waking: Waking;
  state: "new" | "open" | "closed" = "new";
  freed = false;
  wakes = 0;
  poolOffset = 0;
  private address = 0;
  private memory!: ArrayBuffer;
  private region!: Region;
  private packetOffset = 0;
  private packetBytes = 0;
  private bytes = 0;
  private nextPacket = 0;
  private nextToken = 1;
  private onWake: () => void = () => {};
  private wakePending = false;
  private readonly options: Required<DoubleOptions>;

  constructor(options: DoubleOptions = {}) {
    this.options = { slots: 65_536, startAt: 0n, hangsUp: true, ...options };
    this.waking = async (_fd, onWake) => {
      this.onWake = onWake;
      return { terminate: () => (this.onWake = () => {}) };
    };
    const ok = (): number => SHIM_STATUS.ZAP_OK;
    this.verbs = {
      again: SHIM_STATUS.ZAP_E_AGAIN,
      limit: SHIM_STATUS.ZAP_E_LIMIT,
      check: (status, what) => {
        if (status < 0) throw new Error(`${what}: ${status}`);
        return status;
      },
      call: {
        open: (settings) => (this.lay(settings as Uint8Array), 1),
        opened: (_, node) => this.fill(node as Uint8Array),
        close: () => ((this.state = "closed"), 0),
        closed: ok,
        region_free: () => ((this.freed = true), this.memory.transfer(0), this.region.free(), 0),
        dial_begin: (_, dial) => this.dialBegin(dial as Uint8Array),
        dial_cancel: (_, number) => (this.cancelled.push(number), 0),
        flow_close: (_, flow) => {
          this.closedFlows.push(flow);
          if (this.options.hangsUp) this.down({ flow, reason: 1 });
          return 0;
        },
        flow_abort: ok,
        neighbour: ok,
        stats_read: ok,
        queue_read: ok,
        name: () => 0,
      },
    };
  }

  private lay(settings: Uint8Array): void {
    const view = new DataView(settings.buffer);
    const area = (field: "packet_area" | "message_area" | "pool_area"): number =>
      Number(view.getBigUint64(DPDK_SETTINGS.at[field], true));
    const { slots, startAt } = this.options;
    const ring = RING.bytes + slots * RING_ENTRY.bytes;
    const rings = 4 * ring + RING.bytes + EVENT_SLOTS * DPDK_EVENT_BYTES;
    this.packetOffset = Math.ceil(rings / PAGE) * PAGE;
    this.packetBytes = area("packet_area");
    this.poolOffset = this.packetOffset + this.packetBytes + area("message_area");
    this.bytes = this.poolOffset + area("pool_area");
    this.region = heapKind().allocRegion(this.bytes);
    this.address = this.region.address;
    this.memory = toArrayBuffer(this.address as Pointer, 0, this.bytes);
    const make = (at: number): NativeRing =>
      new NativeRing(this.memory, at, slots, RING_ENTRY.bytes, startAt);
    this.handoff = make(0);
    this.returns = make(ring);
    this.sends = make(2 * ring);
    this.dones = make(3 * ring);
    this.events = new NativeRing(this.memory, 4 * ring, EVENT_SLOTS, DPDK_EVENT_BYTES, startAt);
  }

  private fill(node: Uint8Array): number {
    const view = new DataView(node.buffer);
    const { at } = DPDK_NODE;
    view.setBigUint64(at.address, BigInt(this.address), true);
    view.setBigUint64(at.bytes, BigInt(this.bytes), true);
    for (const name of ["handoff", "returns", "sends", "dones", "events"] as const)
      view.setUint32(at[`${name}_offset`], this[name].offset, true);
    view.setUint32(at.event_slots, EVENT_SLOTS, true);
    view.setBigUint64(at.packet_offset, BigInt(this.packetOffset), true);
    view.setBigUint64(at.pool_offset, BigInt(this.poolOffset), true);
    view.setBigUint64(at.pool_bytes, BigInt(this.bytes - this.poolOffset), true);
    view.setInt32(at.region, 7, true);
    view.setInt32(at.wake_fd, -1, true);
    view.setUint32(at.queues, 1, true);
    this.state = "open";
    return SHIM_STATUS.ZAP_OK;
  }

  private dialBegin(memory: Uint8Array): number {
    const view = new DataView(memory.buffer);
    const { at } = DPDK_DIAL;
    this.dials.push({
      number: view.getUint32(at.number, true),
      port: view.getUint16(at.port, true),
      id: readText(memory, at.id, memory[at.id_length] ?? 0),
    });
    return SHIM_STATUS.ZAP_OK;
  }

  /** What a producer does behind its tail. */
  private wake(ring: NativeRing): void {
    if (!ring.armed) return;
    ring.disarm();
    if (this.wakePending) return;
    this.wakePending = true;
    queueMicrotask(() => {
      this.wakePending = false;
      this.wakes++;
      this.onWake();
    });
  }

  // ---- what the test says

  private event(kind: number, write: (view: DataView, bytes: Uint8Array) => void): void {
    this.events.produce((entry) => {
      const bytes = new Uint8Array(entry.buffer, entry.byteOffset, DPDK_EVENT_BYTES).fill(0);
      entry.setUint32(DPDK_EVENT.at.kind, kind, true);
      entry.setBigUint64(DPDK_EVENT.at.messages, this.handoff.tail, true);
      write(entry, bytes);
    });
    this.wake(this.events);
  }

  up({
    flow,
    id,
    number = 0,
    ip = "10.0.0.2",
  }: {
    flow: number;
    id: string;
    number?: number;
    ip?: string;
  }): void {
    this.event(DPDK_EVENTS.up, (view, bytes) => {
      const { at } = DPDK_EVENT;
      view.setUint32(at.flow, flow, true);
      view.setUint32(at.number, number, true);
      view.setUint16(at.port, 9000, true);
      bytes.set(ipBytes(ip)!, at.ip);
      bytes[at.dialled] = number === 0 ? 0 : 1;
      bytes[at.id_length] = new TextEncoder().encodeInto(id, bytes.subarray(at.id)).written;
    });
  }

  down({ flow, reason, undelivered = 0 }: { flow: number; reason: number; undelivered?: number }): void {
    this.event(DPDK_EVENTS.down, (view) => {
      view.setUint32(DPDK_EVENT.at.flow, flow, true);
      view.setUint32(DPDK_EVENT.at.reason, reason, true);
      view.setUint32(DPDK_EVENT.at.undelivered, undelivered, true);
    });
  }

  dialled({ number, reason, flow = 0 }: { number: number; reason: number; flow?: number }): void {
    this.event(DPDK_EVENTS.dialled, (view) => {
      view.setUint32(DPDK_EVENT.at.number, number, true);
      view.setUint32(DPDK_EVENT.at.reason, reason, true);
      view.setUint32(DPDK_EVENT.at.flow, flow, true);
    });
  }

  /** A message has arrived; returns its token. */
  deliver(flow: number, message: Uint8Array): number {
    if (this.nextPacket + message.length > this.packetBytes) this.nextPacket = 0;
    const at = this.packetOffset + this.nextPacket;
    this.nextPacket += Math.ceil(message.length / 64) * 64;
    new Uint8Array(this.memory).set(message, at);
    const token = this.nextToken++;
    this.handoff.produce((entry) => {
      entry.setBigUint64(RING_ENTRY.at.address, BigInt(this.address + at), true);
      entry.setUint32(RING_ENTRY.at.length, message.length, true);
      entry.setUint32(RING_ENTRY.at.peer, flow, true);
      entry.setUint32(RING_ENTRY.at.token, token, true);
    });
    this.wake(this.handoff);
    return token;
  }

  /** Tokens that came back since the last call. */
  returned(): number[] {
    return this.returns.consume((entry) => entry.getUint32(RING_ENTRY.at.token, true));
  }

  /** Messages that were handed over since the last call. */
  takeSends(): Sent[] {
    return this.sends.consume((entry) => {
      const address = Number(entry.getBigUint64(RING_ENTRY.at.address, true));
      const length = entry.getUint32(RING_ENTRY.at.length, true);
      const at = address - this.address;
      if (at < this.packetOffset || at + length > this.bytes)
        throw new Error("a message outside of the region");
      return {
        flow: entry.getUint32(RING_ENTRY.at.peer, true),
        token: entry.getUint32(RING_ENTRY.at.token, true),
        address,
        bytes: new Uint8Array(this.memory.slice(at, at + length)),
      };
    });
  }

  done(token: number, delivered = true): void {
    this.dones.produce((entry) => {
      entry.setUint32(RING_ENTRY.at.token, token, true);
      entry.setUint32(RING_ENTRY.at.length, delivered ? 1 : 0, true);
    });
    this.wake(this.dones);
  }
}

export interface Setup {
  readonly double?: DoubleOptions;
  readonly options?: Omit<WireOptions, "limits" | "onEvent">;
  readonly limits?: Partial<Limits>;
  readonly debug?: boolean;
  readonly env?: Record<string, string>;
}

/** A wire over a double, and what it says. */
export class WireOnDouble implements AsyncDisposable {
  readonly double: EngineDouble;
  readonly wire: DpdkWire;
  readonly events: WireEvent[];
  /** Closed with the pool. */
  readonly kind: { closed: boolean };

  private constructor(double: EngineDouble, wire: DpdkWire, events: WireEvent[], kind: { closed: boolean }) {
    this.double = double;
    this.wire = wire;
    this.events = events;
    this.kind = kind;
  }

  static async open(setup: Setup = {}): Promise<WireOnDouble> {
    const events: WireEvent[] = [];
    const environment = dpdkEnvironment({
      ZAP_DPDK_VDEV: "net_double",
      ZAP_DPDK_ADDRESS: "10.0.0.1/24,fd00::1/64",
      ZAP_DPDK_HUGEPAGES: "0",
      ZAP_DPDK_REGION_BYTES: String(48 * 2 ** 20),
      ...setup.env,
    });
    const limits = { frameBytes: 2 ** 20, ...setup.limits };
    const onEvent = (event: WireEvent): void => void events.push(event);
    const options = resolveDpdkOptions({ nodeId: "us", ...setup.options, limits, onEvent }, environment, {
      device: "net_double",
      freeHugepageBytes: 0,
    });
    const double = new EngineDouble(setup.double);
    const engine = await Engine.open(double.verbs, options, double.waking);
    const state = { closed: false };
    const kind = areaKind(engine.info.address + engine.info.poolOffset, engine.info.poolBytes, state);
    const wire = await DpdkWire.open(options, { engine, kind, device: null, debug: setup.debug ?? false });
    return new WireOnDouble(double, wire, events, state);
  }

  /** Peer `id` on flow `flow`. */
  async connected(flow = 1, id = "them"): Promise<void> {
    this.double.up({ flow, id });
    await turns();
  }

  kinds(): string[] {
    return this.events.map((event) => (event.type === "error" ? event.error.code : event.type));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.wire.close();
  }
}
