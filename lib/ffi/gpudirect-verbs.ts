/** The part of the gpudirect shim that the verbs wire needs: all that the wire knows of it. */
import type { Shim } from "./open.ts";
import { SHIM_STATUS, type Calls, type GPUDIRECT_VERBS } from "./symbols/index.ts";

/** The verbs of `zap_gpudirect.h`. */
export interface GpudirectVerbs {
  readonly call: Omit<Calls<typeof GPUDIRECT_VERBS>, "abi" | "error" | "probe" | "probe_memory" | "live">;
  /** What `opened` and `closed` answer while it goes on. */
  readonly again: number;
  /** What `flow_begin` answers where there are too many. */
  readonly limit: number;
  /** Returns a status of 0 or above; throws `ShimError` for a negative one. `what` fits before "failed". */
  check(status: number, what: string): number;
}

export function gpudirectVerbs(shim: Shim<"libzap_gpudirect">): GpudirectVerbs {
  return {
    call: shim.call,
    again: SHIM_STATUS.ZAP_E_AGAIN,
    limit: SHIM_STATUS.ZAP_E_LIMIT,
    check: (status, what) => shim.check(status, what),
  };
}
