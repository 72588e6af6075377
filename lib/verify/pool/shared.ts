/** Shared memory, and what to say where there is none left. */
import { ZapError } from "../../errors/index.ts";

/** `size` bytes. Throws `ERR_ZAP_VERIFY` where the runtime does not give them. */
export function sharedMemory(size: number): SharedArrayBuffer {
  try {
    return new SharedArrayBuffer(size);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ZapError(
      "ERR_ZAP_VERIFY",
      `verify: no shared memory of ${size} bytes for the workers: ${why}`,
      {
        cause,
      },
    );
  }
}
