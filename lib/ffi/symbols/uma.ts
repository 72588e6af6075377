/** The verbs of `shim/include/zap_uma.h`: the same for CUDA, HIP and Metal. Ownership and errors are described there. */
import type { Structure, Verbs } from "./table.ts";

export const UMA_VERBS = {
  abi: { args: [], returns: "u32" },
  error: { args: ["ptr", "u32"], returns: "i32" },
  probe: { args: ["ptr", "ptr", "i32", "u32", "ptr", "u32"], returns: "i32" },

  open: { args: ["ptr", "ptr", "i32", "u32", "ptr"], returns: "i32" },
  close: { args: ["i32"], returns: "i32" },
  region_alloc: { args: ["i32", "u32", "u64", "ptr"], returns: "i32" },
  region_register: { args: ["i32", "u64", "u64", "ptr"], returns: "i32" },
  region_free: { args: ["i32", "i32"], returns: "i32" },
  region_export: { args: ["i32", "i32"], returns: "i32" },
  copy_to_host: { args: ["i32", "i32", "u64", "ptr", "u64"], returns: "i32" },
  fence_to_device: { args: ["i32"], returns: "i32" },
  fence_to_host: { args: ["i32"], returns: "i32" },
  check_begin: { args: ["i32", "ptr", "u32", "u64"], returns: "i32" },
  check_poll: { args: ["i32", "i32", "ptr", "u32"], returns: "i32" },
  check_host: { args: ["i32", "ptr", "u32", "u64", "ptr"], returns: "i32" },
  verify_load: { args: ["i32", "u32"], returns: "i32" },
  verify_begin: { args: ["i32", "u32", "ptr", "ptr", "u32", "ptr"], returns: "i32" },
  verify_poll: { args: ["i32", "i32"], returns: "i32" },
  verify_host: { args: ["i32", "u32", "ptr", "ptr", "u32", "ptr"], returns: "i32" },
  live: { args: [], returns: "i32" },

  poller_open: { args: ["ptr"], returns: "i32" },
  poller_close: { args: ["i32"], returns: "i32" },
  poller_add: { args: ["i32", "i32"], returns: "i32" },
  poller_remove: { args: ["i32", "i32"], returns: "i32" },
  poller_arm: { args: ["i32", "i32"], returns: "i32" },
  poller_take: { args: ["i32", "ptr", "u32"], returns: "i32" },
  poller_recv: { args: ["i32", "i32", "ptr", "u32", "ptr", "u32"], returns: "i32" },
} as const satisfies Verbs;

/** `zap_uma_device`: bytes of one, where its fields lie, and the room for its texts. */
export const UMA_DEVICE = {
  bytes: 152,
  at: {
    name: 0,
    memory_bytes: 104,
    flags: 112,
    memory: 116,
    index: 120,
    count: 124,
    driver: 128,
    capability: 132,
  },
  texts: { name: 104 },
} as const satisfies Structure;

/** `zap_region`. */
export const UMA_REGION = {
  bytes: 32,
  at: { host: 0, device: 8, bytes: 16, memory: 24 },
} as const satisfies Structure;

/** `zap_span`. */
export const UMA_SPAN = { bytes: 16, at: { region: 0, length: 4, offset: 8 } } as const satisfies Structure;

/** `enum zap_memory`. */
export const UMA_MEMORY = { managed: 1, host: 2, device: 3, shared: 4 } as const;
export type UmaMemory = keyof typeof UMA_MEMORY;

/** `enum zap_uma_flag`. */
export const UMA_FLAGS = {
  managed: 1,
  concurrent: 2,
  pageable: 4,
  integrated: 8,
  dmaBuf: 16,
  gpudirectRdma: 32,
  kernels: 64,
  hostDmaBuf: 128,
  verify: 256,
} as const;
/** `enum zap_scheme`. */
export const UMA_SCHEMES = { ed25519: 1 } as const;

export type UmaFlag = keyof typeof UMA_FLAGS;
