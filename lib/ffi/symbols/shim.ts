/** What all shims share: `shim/include/zap_shim.h`. */
import type { Structure } from "./table.ts";

/** `ZAP_ABI_VERSION`: the one that this version of the package speaks. */
export const ABI_VERSION = 4;

/** `enum zap_status`. */
export const SHIM_STATUS = {
  ZAP_OK: 0,
  ZAP_E_INVALID: -1,
  ZAP_E_HANDLE: -2,
  ZAP_E_MEMORY: -3,
  ZAP_E_LIBRARY: -4,
  ZAP_E_SYMBOL: -5,
  ZAP_E_DRIVER: -6,
  ZAP_E_DEVICE: -7,
  ZAP_E_TIMEOUT: -8,
  ZAP_E_UNSUPPORTED: -9,
  ZAP_E_SYSTEM: -10,
  ZAP_E_AGAIN: -11,
  ZAP_E_LIMIT: -12,
  ZAP_E_RESET: -13,
} as const;
export type StatusName = keyof typeof SHIM_STATUS;

/** `zap_prerequisite`: one row of a probe. */
export const PREREQUISITE = {
  bytes: 512,
  at: { name: 0, seen: 56, fix: 312, met: 504 },
  texts: { name: 56, seen: 256, fix: 192 },
} as const satisfies Structure;
