/** Waiting, so that a signal ends it. */
import { AbortedError } from "../../errors/index.ts";

/** Rejects with `AbortedError` when the signal fires; what comes of `promise` afterwards is nobody's concern. */
export async function abortable(promise: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return promise;
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(new AbortedError("batchVerify", signal.reason));
  promise.catch(() => {});
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort, { once: true });
  try {
    await Promise.race([promise, aborted.promise]);
    // It may have ended early because of the signal.
    if (signal.aborted) throw new AbortedError("batchVerify", signal.reason);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

export function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}
