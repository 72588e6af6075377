/** From our words to the native side's structures and back. */
import {
  DPDK_ALLOWED,
  DPDK_DIAL,
  DPDK_EVENT,
  DPDK_FLAGS,
  DPDK_IDLE,
  DPDK_NODE,
  DPDK_SETTINGS,
  readText,
} from "../../ffi/index.ts";
import { parseAddress } from "../common/address.ts";
import { NODE_ID_BYTES_MAX } from "../common/node-id.ts";
import { ipBytes } from "./ip.ts";
import type { RegionInfo } from "../native/engine.ts";
import { QUEUE_MESSAGES } from "../native/outbox.ts";
import type { DpdkOptions } from "./options.ts";

const encoder = new TextEncoder();
/** The native side never waits for less than what we accept. */
const QUEUE_BYTES_MIN = 4 * 1024 * 1024;
/** A software device's other end may be a moment late. */
const START_MILLIS = 3_000;
/** Silences of `keepalive_ms` after which a peer is dead. */
const DEAD_KEEPALIVES = 5;
const MILLIS_MAX = 2_147_483_647 / 1_000;

export function packSettings(options: DpdkOptions): Uint8Array {
  const { limits, environment: set, areas } = options;
  const { at, texts } = DPDK_SETTINGS;
  const memory = new Uint8Array(DPDK_SETTINGS.bytes);
  const view = new DataView(memory.buffer);
  const text = (field: "device" | "pci" | "cpus" | "queue_cpus", value: string): void =>
    memory.set(encoder.encode(value).subarray(0, texts[field] - 1), at[field]);
  const u32 = (field: keyof typeof at, value: number): void => view.setUint32(at[field], value, true);
  const u64 = (field: keyof typeof at, value: number): void =>
    view.setBigUint64(at[field], BigInt(value), true);

  text("device", options.device);
  if (set.vdev === null) text("pci", options.device);
  text("cpus", set.cpus);
  text("queue_cpus", set.queueCpus);
  const id = encoder.encode(options.nodeId);
  memory.set(id, at.id);
  memory[at.id_length] = id.length;

  let flags = options.allow === null ? DPDK_FLAGS.strangers : 0;
  if (set.hugepages) flags |= DPDK_FLAGS.hugepages;
  if (options.listening) flags |= DPDK_FLAGS.listen;
  if (set.ip4 !== null) {
    flags |= DPDK_FLAGS.ip4;
    memory.set(set.ip4.ip.subarray(12), at.ip4);
    memory[at.prefix4] = set.ip4.prefix;
  }
  if (set.ip6 !== null) {
    flags |= DPDK_FLAGS.ip6;
    memory.set(set.ip6.ip, at.ip6);
    memory[at.prefix6] = set.ip6.prefix;
  }
  if (set.gateway4 !== null) {
    flags |= DPDK_FLAGS.gateway4;
    memory.set(set.gateway4.subarray(12), at.gateway4);
  }
  if (set.gateway6 !== null) {
    flags |= DPDK_FLAGS.gateway6;
    memory.set(set.gateway6, at.gateway6);
  }
  u32("flags", flags);
  view.setUint16(at.udp_port, options.udpPort, true);
  view.setUint16(at.mtu, set.mtu, true);
  u32("queues", set.queues);
  u32("idle", DPDK_IDLE[set.idle]);
  u32("sleep_us", set.idleMicros);
  memory[at.socket] = set.socket;
  u32("memory_mib", set.memoryMib);
  u32("start_ms", START_MILLIS);
  u32("message_bytes", limits.frameBytes);
  u32("flows", options.flows);
  u32("candidates", options.candidates);
  u32("handshake_ms", millis(limits.handshakeMillis));
  // What is cut off must not make the two the same.
  const keepalive = Math.min(options.keepaliveMillis, MILLIS_MAX / DEAD_KEEPALIVES);
  u32("keepalive_ms", millis(keepalive));
  u32("dead_ms", millis(DEAD_KEEPALIVES * keepalive));
  u32("close_ms", millis(limits.closeMillis));
  u32("queue_messages", QUEUE_MESSAGES);
  u64("queue_bytes", Math.max(limits.sendQueueBytes, QUEUE_BYTES_MIN));
  u64("receive_bytes", limits.recvQueueBytes);
  u64("total_bytes", limits.totalQueueBytes);
  u64("packet_area", areas.packets);
  u64("message_area", areas.messages);
  u64("pool_area", areas.pool);
  (options.versions ?? []).forEach((version, index) =>
    view.setUint16(at.versions + 2 * index, version, true),
  );
  return memory;
}

/** The native side counts microseconds in 32 bits. */
function millis(value: number): number {
  return Math.max(1, Math.min(Math.floor(value), Math.floor(MILLIS_MAX)));
}

/**
 * Who may be a peer: the ids of `allow`, those of `peers` only from their address where that is a literal. No entries at all would
 * mean everybody, so an empty list has our own id, which is never a peer's.
 */
export function packAllowed(options: DpdkOptions): { readonly memory: Uint8Array; readonly entries: number } {
  const { allow, peers, nodeId } = options;
  const ids =
    allow === null ? [...peers].filter(([, address]) => literal(address)).map(([id]) => id) : [...allow];
  if (allow !== null && ids.length === 0) ids.push(nodeId);
  const { bytes, at } = DPDK_ALLOWED;
  const memory = new Uint8Array(Math.max(1, ids.length) * bytes);
  ids.forEach((id, index) => {
    const entry = memory.subarray(index * bytes, (index + 1) * bytes);
    entry[at.id_length] = encoder.encodeInto(id, entry.subarray(at.id, at.id + NODE_ID_BYTES_MAX)).written;
    const ip = literal(peers.get(id));
    if (ip === null) return;
    entry.set(ip, at.ip);
    entry[at.pinned] = 1;
  });
  return { memory, entries: ids.length };
}

function literal(address: string | undefined): Uint8Array | null {
  if (address === undefined) return null;
  const parsed = parseAddress(address);
  return parsed.kind === "tcp" ? ipBytes(parsed.host) : null;
}

export interface DialRequest {
  readonly number: number;
  /** 16 bytes. */
  readonly ip: Uint8Array;
  readonly port: number;
  /** Whom to expect, or null for anybody. */
  readonly id: string | null;
}

export function packDial({ number, ip, port, id }: DialRequest): Uint8Array {
  const { bytes, at } = DPDK_DIAL;
  const memory = new Uint8Array(bytes);
  const view = new DataView(memory.buffer);
  if (id !== null)
    memory[at.id_length] = encoder.encodeInto(id, memory.subarray(at.id, at.id + NODE_ID_BYTES_MAX)).written;
  memory.set(ip, at.ip);
  view.setUint16(at.port, port, true);
  view.setUint32(at.number, number, true);
  return memory;
}

/** A node that is open; offsets count from `address`. */
export interface NodeInfo extends RegionInfo {
  readonly queues: number;
  readonly mtu: number;
  /** 6 bytes. */
  readonly mac: Uint8Array;
  readonly driver: string;
  readonly name: string;
  readonly version: string;
}

export function readNode(memory: Uint8Array): NodeInfo {
  const { at, texts } = DPDK_NODE;
  const view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  const u32 = (field: keyof typeof at): number => view.getUint32(at[field], true);
  const u64 = (field: keyof typeof at): number => Number(view.getBigUint64(at[field], true));
  return {
    address: u64("address"),
    bytes: u64("bytes"),
    handoffOffset: u32("handoff_offset"),
    returnsOffset: u32("returns_offset"),
    sendsOffset: u32("sends_offset"),
    donesOffset: u32("dones_offset"),
    eventsOffset: u32("events_offset"),
    memoryOffset: u64("packet_offset"),
    poolOffset: u64("pool_offset"),
    poolBytes: u64("pool_bytes"),
    region: view.getInt32(at.region, true),
    wakeFd: view.getInt32(at.wake_fd, true),
    queues: u32("queues"),
    mtu: view.getUint16(at.mtu, true),
    mac: memory.slice(at.mac, at.mac + 6),
    driver: readText(memory, at.driver, texts.driver),
    name: readText(memory, at.name, texts.name),
    version: readText(memory, at.version, texts.version),
  };
}

export interface NodeEvent {
  /** Entries of the hand-off ring that were written before it. */
  readonly messages: number;
  readonly kind: number;
  readonly flow: number;
  readonly number: number;
  readonly reason: number;
  readonly undelivered: number;
  readonly port: number;
  readonly dialled: boolean;
  /** 16 bytes. */
  readonly ip: Uint8Array;
  readonly id: string;
}

export function readEvent(memory: Uint8Array): NodeEvent {
  const { at } = DPDK_EVENT;
  const view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  const u32 = (field: keyof typeof at): number => view.getUint32(at[field], true);
  return {
    messages: Number(view.getBigUint64(at.messages, true)),
    kind: u32("kind"),
    flow: u32("flow"),
    number: u32("number"),
    reason: u32("reason"),
    undelivered: u32("undelivered"),
    port: view.getUint16(at.port, true),
    dialled: memory[at.dialled] !== 0,
    ip: memory.slice(at.ip, at.ip + 16),
    id: new TextDecoder().decode(
      memory.subarray(at.id, at.id + Math.min(NODE_ID_BYTES_MAX, memory[at.id_length] ?? 0)),
    ),
  };
}
