/** The verbs of `shim/include/zap_dpdk.h`, and the rings of `zap_ring.h`. Ownership, threads and errors are described there. */
import type { Structure, Verbs } from "./table.ts";

export const DPDK_VERBS = {
  abi: { args: [], returns: "u32" },
  error: { args: ["ptr", "u32"], returns: "i32" },
  probe: { args: ["ptr", "u32"], returns: "i32" },

  open: { args: ["ptr", "ptr", "u32"], returns: "i32" },
  opened: { args: ["i32", "ptr"], returns: "i32" },
  close: { args: ["i32"], returns: "i32" },
  closed: { args: ["i32"], returns: "i32" },
  region_free: { args: ["i32"], returns: "i32" },
  dial_begin: { args: ["i32", "ptr"], returns: "i32" },
  dial_cancel: { args: ["i32", "u32"], returns: "i32" },
  flow_close: { args: ["i32", "u32"], returns: "i32" },
  flow_abort: { args: ["i32", "u32"], returns: "i32" },
  neighbour: { args: ["i32", "ptr", "ptr"], returns: "i32" },
  stats_read: { args: ["i32", "ptr"], returns: "i32" },
  queue_read: { args: ["i32", "u32", "ptr"], returns: "i32" },
  name: { args: ["u32", "u32", "ptr", "u32"], returns: "i32" },
  live: { args: [], returns: "i32" },
} as const satisfies Verbs;

/** `ZAP_DPDK_MESSAGES` and `ZAP_DPDK_EVENT_BYTES`. */
export const DPDK_MESSAGES = 65_536;
export const DPDK_EVENT_BYTES = 128;

/** `zap_dpdk_settings`. */
export const DPDK_SETTINGS = {
  bytes: 1504,
  at: {
    device: 0,
    pci: 512,
    cpus: 768,
    queue_cpus: 1024,
    id: 1280,
    ip4: 1340,
    ip6: 1344,
    gateway4: 1360,
    gateway6: 1364,
    id_length: 1380,
    prefix4: 1381,
    prefix6: 1382,
    socket: 1383,
    udp_port: 1384,
    mtu: 1386,
    flags: 1388,
    queues: 1392,
    slots: 1396,
    idle: 1400,
    sleep_us: 1404,
    memory_mib: 1408,
    start_ms: 1412,
    message_bytes: 1416,
    flows: 1420,
    candidates: 1424,
    handshake_ms: 1428,
    keepalive_ms: 1432,
    dead_ms: 1436,
    close_ms: 1440,
    queue_messages: 1444,
    queue_bytes: 1448,
    receive_bytes: 1456,
    total_bytes: 1464,
    packet_area: 1472,
    message_area: 1480,
    pool_area: 1488,
    versions: 1496,
  },
  texts: { device: 512, pci: 256, cpus: 256, queue_cpus: 256, id: 60, ip6: 16, gateway6: 16 },
} as const satisfies Structure;

/** `zap_dpdk_allowed`. */
export const DPDK_ALLOWED = {
  bytes: 84,
  at: { id: 0, ip: 60, port: 76, id_length: 78, pinned: 79 },
  texts: { id: 60, ip: 16 },
} as const satisfies Structure;

/** `zap_dpdk_node`. */
export const DPDK_NODE = {
  bytes: 280,
  at: {
    address: 0,
    bytes: 8,
    page_bytes: 16,
    handoff_offset: 24,
    returns_offset: 28,
    sends_offset: 32,
    dones_offset: 36,
    events_offset: 40,
    event_slots: 44,
    packet_offset: 48,
    message_offset: 56,
    pool_offset: 64,
    pool_bytes: 72,
    region: 80,
    wake_fd: 84,
    payload_bytes: 88,
    queues: 92,
    own_memory: 96,
    lends: 100,
    buffers: 104,
    mtu: 108,
    mac: 110,
    driver: 116,
    name: 148,
    version: 212,
  },
  texts: { driver: 32, name: 64, version: 32 },
} as const satisfies Structure;

/** `zap_dpdk_dial`. */
export const DPDK_DIAL = {
  bytes: 84,
  at: { id: 0, ip: 60, port: 76, id_length: 78, number: 80 },
  texts: { id: 60, ip: 16 },
} as const satisfies Structure;

/** `zap_dpdk_event`. */
export const DPDK_EVENT = {
  bytes: 128,
  at: {
    messages: 0,
    kind: 8,
    flow: 12,
    number: 16,
    reason: 20,
    undelivered: 24,
    port: 28,
    dialled: 30,
    id_length: 31,
    ip: 32,
    id: 48,
    payload_bytes: 108,
  },
  texts: { ip: 16, id: 60 },
} as const satisfies Structure;

/** `zap_dpdk_stats`; the first three are lists of numbers. */
export const DPDK_STATS = {
  bytes: 736,
  at: {
    verdicts: 0,
    datagram_drops: 192,
    message_drops: 384,
    messages_in: 448,
    bytes_in: 456,
    messages_out: 464,
    bytes_copied: 472,
    in_place: 480,
    segments_out: 488,
    segments_again: 496,
    losses: 504,
    timeouts: 512,
    undelivered: 520,
    not_sent: 528,
    unusable_sends: 536,
    missed: 544,
    no_buffers: 552,
    device_errors: 560,
    held_bytes: 568,
    queued_messages: 576,
    queued_bytes: 584,
    flows: 592,
    dials: 596,
    candidates: 600,
    buffers_free: 604,
    link: 608,
    mbit: 612,
  },
  texts: { verdicts: 192, datagram_drops: 192, message_drops: 64 },
} as const satisfies Structure;

/** `zap_dpdk_queue`. */
export const DPDK_QUEUE = {
  bytes: 80,
  at: {
    packets_in: 0,
    packets_out: 8,
    bytes_in: 16,
    bytes_out: 24,
    polls: 32,
    empty_polls: 40,
    idles: 48,
    no_neighbour: 56,
    no_buffer: 64,
    full: 72,
  },
} as const satisfies Structure;

/** `enum zap_dpdk_flag`. */
export const DPDK_FLAGS = {
  hugepages: 1,
  listen: 2,
  strangers: 4,
  ip4: 8,
  ip6: 16,
  gateway4: 32,
  gateway6: 64,
  copy: 128,
} as const;

/** `enum zap_dpdk_idle`. */
export const DPDK_IDLE = { spin: 0, yield: 1, sleep: 2 } as const;

/** `enum zap_dpdk_event_kind`. */
export const DPDK_EVENTS = { up: 1, down: 2, dialled: 3 } as const;

/** `enum zap_dpdk_names`: lists of short and stable names. */
export const DPDK_NAMES = { frame: 0, datagram: 1, message: 2, reason: 3 } as const;

/** `zap_ring`: five numbers that never change, and three that either side writes. */
export const RING = {
  bytes: 512,
  at: { magic: 0, version: 4, slots: 8, entry_bytes: 12, tail: 128, head: 256, armed: 384 },
} as const satisfies Structure;
export const RING_MAGIC = 0x474e5250;
export const RING_VERSION = 1;

/** `zap_ring_entry`. */
export const RING_ENTRY = {
  bytes: 32,
  at: { address: 0, length: 8, peer: 12, stamp: 16, token: 24 },
} as const satisfies Structure;
