/** The verbs of `shim/include/zap_gpudirect.h`. Ownership, threads and errors are described there; the rings are those of `dpdk.ts`. */
import type { Structure, Verbs } from "./table.ts";

export const GPUDIRECT_VERBS = {
  abi: { args: [], returns: "u32" },
  error: { args: ["ptr", "u32"], returns: "i32" },
  probe: { args: ["ptr", "ptr", "u32", "i32", "ptr", "u32"], returns: "i32" },
  probe_memory: { args: ["ptr", "ptr", "u32", "u64", "u64", "i32"], returns: "i32" },

  open: { args: ["ptr"], returns: "i32" },
  opened: { args: ["i32", "ptr"], returns: "i32" },
  close: { args: ["i32"], returns: "i32" },
  closed: { args: ["i32"], returns: "i32" },
  region_free: { args: ["i32"], returns: "i32" },
  flow_begin: { args: ["i32", "ptr"], returns: "i32" },
  flow_accept: { args: ["i32", "u32", "ptr"], returns: "i32" },
  flow_close: { args: ["i32", "u32"], returns: "i32" },
  flow_abort: { args: ["i32", "u32"], returns: "i32" },
  kick: { args: ["i32"], returns: "i32" },
  stats_read: { args: ["i32", "ptr"], returns: "i32" },
  name: { args: ["u32", "u32", "ptr", "u32"], returns: "i32" },
  live: { args: [], returns: "i32" },
} as const satisfies Verbs;

/** `ZAP_GPUDIRECT_MESSAGES` and `ZAP_GPUDIRECT_EVENT_BYTES`. */
export const GPUDIRECT_MESSAGES = 65_536;
export const GPUDIRECT_EVENT_BYTES = 64;

/** `zap_gpudirect_settings`. */
export const GPUDIRECT_SETTINGS = {
  bytes: 448,
  at: {
    runtime: 0,
    device: 256,
    port: 320,
    gid_index: 324,
    flags: 328,
    traffic_class: 332,
    host_address: 336,
    host_bytes: 344,
    eager_bytes: 352,
    receives: 356,
    flows: 360,
    message_bytes: 364,
    eager_area: 368,
    message_area: 376,
    pool_area: 384,
    receive_bytes: 392,
    total_bytes: 400,
    versions: 408,
    close_ms: 416,
    timeout_ms: 420,
    device_address: 424,
    device_bytes: 432,
    dma_buf_fd: 440,
    method: 444,
  },
  texts: { runtime: 256, device: 64 },
} as const satisfies Structure;

/** `zap_gpudirect_node`. */
export const GPUDIRECT_NODE = {
  bytes: 296,
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
    eager_offset: 48,
    message_offset: 56,
    pool_offset: 64,
    pool_bytes: 72,
    registered_bytes: 80,
    region: 88,
    wake_fd: 92,
    method: 96,
    eager_bytes: 100,
    port: 104,
    gid_index: 108,
    windows: 112,
    mtu: 116,
    ethernet: 120,
    lid: 124,
    gid: 128,
    device: 144,
    firmware: 208,
    device_address: 272,
    device_bytes: 280,
    region_method: 288,
  },
  texts: { gid: 16, device: 64, firmware: 64 },
} as const satisfies Structure;

/** `zap_gpudirect_offer`. */
export const GPUDIRECT_OFFER = {
  bytes: 80,
  at: {
    magic: 0,
    queue_pair: 4,
    sequence: 8,
    lid: 12,
    mtu: 16,
    ethernet: 20,
    eager_bytes: 24,
    receives: 28,
    message_bytes: 32,
    reads: 36,
    gid: 40,
  },
  texts: { gid: 16 },
} as const satisfies Structure;
/** `magic` of an offer: "ZGD1". */
export const GPUDIRECT_OFFER_MAGIC = 0x3144475a;

/** `zap_gpudirect_event`. */
export const GPUDIRECT_EVENT = {
  bytes: 64,
  at: { messages: 0, kind: 8, flow: 12, reason: 16, status: 20, undelivered: 24, error: 28 },
} as const satisfies Structure;

/** `zap_gpudirect_stats`; the first is a list of numbers. */
export const GPUDIRECT_STATS = {
  bytes: 272,
  at: {
    message_drops: 0,
    messages_in: 64,
    bytes_in: 72,
    messages_out: 80,
    bytes_out: 88,
    undelivered: 96,
    sends: 104,
    inline_sends: 112,
    reads: 120,
    receives: 128,
    completions: 136,
    polls: 144,
    sleeps: 152,
    stalls: 160,
    failures: 168,
    retries_exceeded: 176,
    rnr_exceeded: 184,
    port_events: 192,
    unusable: 200,
    held_bytes: 208,
    queued_messages: 216,
    queued_bytes: 224,
    flows: 232,
    free_slabs: 236,
  },
  texts: { message_drops: 64 },
} as const satisfies Structure;

/** `enum zap_gpudirect_flag`. */
export const GPUDIRECT_FLAGS = { spin: 1, noWindows: 2, windows: 4, driven: 8 } as const;

/** `enum zap_gpudirect_method`. */
export const GPUDIRECT_METHODS = { dmaBuf: 1, peermem: 2, locked: 3, host: 4 } as const;

/** `enum zap_gpudirect_event_kind`. */
export const GPUDIRECT_EVENTS = { down: 1, port: 2, up: 3 } as const;

/** `enum zap_gpudirect_names`: lists of short and stable names. */
export const GPUDIRECT_NAMES = { message: 0, reason: 1, status: 2 } as const;
