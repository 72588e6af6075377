/** The part of a unified-memory shim that receives from sockets: the same in each, and all that the wire knows of a shim. */
import type { Shim } from "./open.ts";
import { SHIM_STATUS, type Calls, type UMA_VERBS, type UmaShimName } from "./symbols/index.ts";

type Verb = Calls<typeof UMA_VERBS>;

/** The `poller_` verbs of `zap_uma.h`. */
export interface PollerVerbs {
  readonly open: Verb["poller_open"];
  readonly close: Verb["poller_close"];
  readonly add: Verb["poller_add"];
  readonly remove: Verb["poller_remove"];
  readonly arm: Verb["poller_arm"];
  readonly take: Verb["poller_take"];
  readonly recv: Verb["poller_recv"];
  /** What `recv` answers where nothing is there. */
  readonly again: number;
  /** Returns a status of 0 or above; throws `ShimError` for a negative one. `what` fits before "failed". */
  check(status: number, what: string): number;
}

export function pollerVerbs(shim: Shim<UmaShimName>): PollerVerbs {
  const { call } = shim;
  return {
    open: call.poller_open,
    close: call.poller_close,
    add: call.poller_add,
    remove: call.poller_remove,
    arm: call.poller_arm,
    take: call.poller_take,
    recv: call.poller_recv,
    again: SHIM_STATUS.ZAP_E_AGAIN,
    check: (status, what) => shim.check(status, what),
  };
}
