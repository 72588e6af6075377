/**
 * Symbols: what each shim exports, one table for each header in `shim/include`.
 *
 * What lives here: names, types and structures as C has them, and nothing that runs. May import: nothing.
 * Start at `uma.ts`. A test holds every table against its header; change both together.
 */
import { DPDK_VERBS } from "./dpdk.ts";
import { GPUDIRECT_VERBS } from "./gpudirect.ts";
import { UMA_VERBS } from "./uma.ts";

/** For each library: what its exports begin with, and its verbs. */
export const SHIMS = {
  libzap_uma_cuda: { prefix: "zap_uma_cuda_", verbs: UMA_VERBS },
  libzap_uma_hip: { prefix: "zap_uma_hip_", verbs: UMA_VERBS },
  libzap_uma_metal: { prefix: "zap_uma_metal_", verbs: UMA_VERBS },
  libzap_dpdk: { prefix: "zap_dpdk_", verbs: DPDK_VERBS },
  libzap_gpudirect: { prefix: "zap_gpudirect_", verbs: GPUDIRECT_VERBS },
} as const;

export type ShimName = keyof typeof SHIMS;
export type UmaShimName = Extract<ShimName, `libzap_uma_${string}`>;
export type VerbsOf<N extends ShimName> = (typeof SHIMS)[N]["verbs"];

export { ABI_VERSION, PREREQUISITE, SHIM_STATUS, type StatusName } from "./shim.ts";
export type { Calls, Verbs } from "./table.ts";
export { UMA_DEVICE, UMA_FLAGS, UMA_MEMORY, UMA_REGION, UMA_SCHEMES, UMA_SPAN, UMA_VERBS } from "./uma.ts";
export type { UmaFlag, UmaMemory } from "./uma.ts";
export {
  DPDK_ALLOWED,
  DPDK_DIAL,
  DPDK_EVENT,
  DPDK_EVENT_BYTES,
  DPDK_EVENTS,
  DPDK_FLAGS,
  DPDK_IDLE,
  DPDK_MESSAGES,
  DPDK_NAMES,
  DPDK_NODE,
  DPDK_QUEUE,
  DPDK_SETTINGS,
  DPDK_STATS,
  DPDK_VERBS,
  RING,
  RING_ENTRY,
  RING_MAGIC,
  RING_VERSION,
} from "./dpdk.ts";
export {
  GPUDIRECT_EVENT,
  GPUDIRECT_EVENT_BYTES,
  GPUDIRECT_EVENTS,
  GPUDIRECT_FLAGS,
  GPUDIRECT_MESSAGES,
  GPUDIRECT_METHODS,
  GPUDIRECT_NAMES,
  GPUDIRECT_NODE,
  GPUDIRECT_OFFER,
  GPUDIRECT_OFFER_MAGIC,
  GPUDIRECT_SETTINGS,
  GPUDIRECT_STATS,
  GPUDIRECT_VERBS,
} from "./gpudirect.ts";
