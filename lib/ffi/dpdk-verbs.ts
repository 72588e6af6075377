/** The part of the dpdk shim that the wire needs: all that the wire knows of it. */
import type { Shim } from "./open.ts";
import { SHIM_STATUS, type Calls, type DPDK_VERBS } from "./symbols/index.ts";

/** The verbs of `zap_dpdk.h`. */
export interface DpdkVerbs {
  readonly call: Omit<Calls<typeof DPDK_VERBS>, "abi" | "error" | "probe" | "live">;
  /** What `opened` and `closed` answer while it goes on. */
  readonly again: number;
  /** What `dial_begin` answers where there are too many. */
  readonly limit: number;
  /** Returns a status of 0 or above; throws `ShimError` for a negative one. `what` fits before "failed". */
  check(status: number, what: string): number;
}

export function dpdkVerbs(shim: Shim<"libzap_dpdk">): DpdkVerbs {
  return {
    call: shim.call,
    again: SHIM_STATUS.ZAP_E_AGAIN,
    limit: SHIM_STATUS.ZAP_E_LIMIT,
    check: (status, what) => shim.check(status, what),
  };
}
