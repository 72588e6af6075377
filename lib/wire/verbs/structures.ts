/** From our words to the native side's structures and back. */
import {
  GPUDIRECT_EVENT,
  GPUDIRECT_FLAGS,
  GPUDIRECT_METHODS,
  GPUDIRECT_NODE,
  GPUDIRECT_OFFER,
  GPUDIRECT_OFFER_MAGIC,
  GPUDIRECT_SETTINGS,
  readText,
} from "../../ffi/index.ts";
import { LimitError } from "../../errors/index.ts";
import type { RegionInfo } from "../native/engine.ts";
import type { VerbsOptions } from "./options.ts";

const encoder = new TextEncoder();
const U32_MAX = 0xffff_ffff;

/** Memory of the caller's that a GPU knows, for all of the region. */
export interface HostMemory {
  readonly address: number;
  readonly bytes: number;
}

/** Memory of a GPU's own, for what is received: all of it is registered. */
export interface OwnMemory {
  /** Where the GPU finds it. */
  readonly address: number;
  readonly bytes: number;
  readonly method: "dma-buf" | "peermem";
  /** A dma-buf of all of it, which the node does not close; -1 where it is not needed. */
  readonly dmaBuf: number;
}

/** `runtime`: absolute path of libibverbs. */
export function packSettings(
  options: VerbsOptions,
  runtime: string,
  host: HostMemory | null,
  own: OwnMemory | null = null,
): Uint8Array {
  const { limits, environment: set, areas } = options;
  const { at, texts, bytes } = GPUDIRECT_SETTINGS;
  const memory = new Uint8Array(bytes);
  const view = new DataView(memory.buffer);
  const u32 = (field: keyof typeof at, value: number): void =>
    view.setUint32(at[field], Math.min(value, U32_MAX), true);
  const u64 = (field: keyof typeof at, value: number): void =>
    view.setBigUint64(at[field], BigInt(value), true);
  const path = encoder.encode(runtime);
  if (path.length >= texts.runtime)
    throw new LimitError(`the path of libibverbs is too long: ${path.length} bytes`);
  memory.set(path, at.runtime);
  memory.set(encoder.encode(set.device), at.device);
  u32("port", set.port);
  view.setInt32(at.gid_index, set.gidIndex, true);
  u32("flags", set.spin ? GPUDIRECT_FLAGS.spin : 0);
  u32("traffic_class", set.trafficClass);
  u32("timeout_ms", set.timeoutMillis);
  u64("host_address", host?.address ?? 0);
  u64("host_bytes", host?.bytes ?? 0);
  u32("eager_bytes", set.eagerBytes);
  u32("receives", set.receives);
  u32("flows", options.flows);
  u32("message_bytes", limits.frameBytes);
  u64("eager_area", areas.eager);
  u64("message_area", areas.messages);
  u64("pool_area", areas.pool);
  u64("receive_bytes", limits.recvQueueBytes);
  u64("total_bytes", limits.totalQueueBytes);
  (options.versions ?? []).forEach((version, index) =>
    view.setUint16(at.versions + 2 * index, version, true),
  );
  u32("close_ms", limits.closeMillis);
  u64("device_address", own?.address ?? 0);
  u64("device_bytes", own?.bytes ?? 0);
  view.setInt32(at.dma_buf_fd, own?.dmaBuf ?? -1, true);
  if (own !== null)
    u32("method", own.method === "dma-buf" ? GPUDIRECT_METHODS.dmaBuf : GPUDIRECT_METHODS.peermem);
  return memory;
}

const METHODS = {
  [GPUDIRECT_METHODS.dmaBuf]: "dma-buf",
  [GPUDIRECT_METHODS.peermem]: "peermem",
  [GPUDIRECT_METHODS.locked]: "page-locked",
  [GPUDIRECT_METHODS.host]: "host",
} as const;
export type Method = (typeof METHODS)[keyof typeof METHODS];

/** A node that is open; offsets count from `address`. */
export interface NodeInfo extends RegionInfo {
  /** Of the region, and of a GPU's own memory. */
  readonly registeredBytes: Readonly<Partial<Record<Method, number>>>;
  /** What received messages lie in. */
  readonly method: Method;
  readonly port: number;
  readonly gidIndex: number;
  readonly windows: boolean;
  readonly mtu: number;
  readonly ethernet: boolean;
  readonly device: string;
  readonly firmware: string;
}

function methodOf(number: number): Method | null {
  return METHODS[number as keyof typeof METHODS] ?? null;
}

export function readNode(memory: Uint8Array): NodeInfo {
  const { at, texts } = GPUDIRECT_NODE;
  const view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  const u32 = (field: keyof typeof at): number => view.getUint32(at[field], true);
  const u64 = (field: keyof typeof at): number => Number(view.getBigUint64(at[field], true));
  const method = methodOf(u32("method")) ?? "page-locked";
  const own = u64("device_address") !== 0;
  return {
    address: u64("address"),
    bytes: u64("bytes"),
    handoffOffset: u32("handoff_offset"),
    returnsOffset: u32("returns_offset"),
    sendsOffset: u32("sends_offset"),
    donesOffset: u32("dones_offset"),
    eventsOffset: u32("events_offset"),
    // In the region lies then only what is to be sent.
    memoryOffset: u64(own ? "pool_offset" : "eager_offset"),
    poolOffset: u64("pool_offset"),
    poolBytes: u64("pool_bytes"),
    registeredBytes: own
      ? {
          [methodOf(u32("region_method")) ?? "page-locked"]: u64("registered_bytes"),
          [method]: u64("device_bytes"),
        }
      : { [method]: u64("registered_bytes") },
    region: view.getInt32(at.region, true),
    wakeFd: view.getInt32(at.wake_fd, true),
    method,
    port: u32("port"),
    gidIndex: u32("gid_index"),
    windows: u32("windows") !== 0,
    mtu: u32("mtu"),
    ethernet: u32("ethernet") !== 0,
    device: readText(memory, at.device, texts.device),
    firmware: readText(memory, at.firmware, texts.firmware),
  };
}

export interface NodeEvent {
  /** Entries of the hand-off ring that were written before it. */
  readonly messages: number;
  readonly kind: number;
  readonly flow: number;
  readonly reason: number;
  readonly status: number;
  readonly undelivered: number;
  /** The errno of what failed, or 0. */
  readonly error: number;
}

export function readEvent(memory: Uint8Array): NodeEvent {
  const { at } = GPUDIRECT_EVENT;
  const view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  const u32 = (field: keyof typeof at): number => view.getUint32(at[field], true);
  return {
    messages: Number(view.getBigUint64(at.messages, true)),
    kind: u32("kind"),
    flow: u32("flow"),
    reason: u32("reason"),
    status: u32("status"),
    undelivered: u32("undelivered"),
    error: u32("error"),
  };
}

/** What each number of an offer may be, from and to; queue pairs and sequences have 24 bits. */
const RANGES: Readonly<Partial<Record<keyof typeof GPUDIRECT_OFFER.at, readonly [number, number]>>> = {
  queue_pair: [1, 0xff_ffff],
  sequence: [0, 0xff_ffff],
  lid: [0, 0xffff],
  mtu: [256, 4096],
  ethernet: [0, 1],
  eager_bytes: [256, 1024 * 1024],
  receives: [16, 65_536],
  message_bytes: [16, 1024 * 1024 * 1024],
  reads: [1, 0xffff],
};

/** What is wrong with a peer's offer, or null. */
export function offerFault(offer: Uint8Array): string | null {
  if (offer.length !== GPUDIRECT_OFFER.bytes)
    return `an offer has ${GPUDIRECT_OFFER.bytes} bytes, and this one ${offer.length}`;
  const view = new DataView(offer.buffer, offer.byteOffset, offer.byteLength);
  if (view.getUint32(GPUDIRECT_OFFER.at.magic, true) !== GPUDIRECT_OFFER_MAGIC)
    return "the offer is of another version, or none";
  for (const [name, [least, most]] of Object.entries(RANGES)) {
    const value = view.getUint32(GPUDIRECT_OFFER.at[name as keyof typeof GPUDIRECT_OFFER.at], true);
    if (value < least || value > most)
      return `the offer's ${name} is ${value}, and not between ${least} and ${most}`;
  }
  return null;
}
