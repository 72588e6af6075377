/** The verbs of `shim/include/zap_gpudirect.h`. */
import type { Verbs } from "./table.ts";

export const GPUDIRECT_VERBS = {
  abi: { args: [], returns: "u32" },
  error: { args: ["ptr", "u32"], returns: "i32" },
  probe: { args: ["ptr", "u32"], returns: "i32" },
} as const satisfies Verbs;
