/** What the pool says where a batch cannot be finished. */
import { AbortedError, ZapError } from "../../errors/index.ts";

/** Workers cannot be started on this host; the calling thread can do the work instead. */
export class NoWorkersError extends ZapError {
  constructor(why: string) {
    super("ERR_ZAP_VERIFY", `verify: no worker could be started: ${why}`);
  }
}

export function aborted(signal: AbortSignal): AbortedError {
  return new AbortedError("verify", signal.reason);
}

export function lostTwice(scheme: string, why: string): ZapError {
  return new ZapError(
    "ERR_ZAP_VERIFY",
    `verify: a worker was lost twice over the same ${scheme} items: ${why}`,
  );
}

export function lostMany(scheme: string, many: number, why: string): ZapError {
  return new ZapError(
    "ERR_ZAP_VERIFY",
    `verify: ${many} workers in a row were lost while ${scheme} items were verified: ${why}`,
  );
}
