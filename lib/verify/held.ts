/** The memory of a batch while it is worked on: it may be taken away meanwhile, and then whatever came of it is no verdict. */
import { ZapError } from "../errors/index.ts";
import { TABLE_STRIDE, type PackedBatch } from "./contract.ts";

/** The caller has released a batch's memory while it was under way; no backend is to blame. */
export class ReleasedError extends ZapError {
  constructor(cause?: unknown) {
    super(
      "ERR_ZAP_VERIFY",
      "verify: the batch's bytes or table were released or changed in size while it was verified",
      cause === undefined ? undefined : { cause },
    );
  }
}

/** Whether what had `length` bytes, and a whole table, is still there. */
export function isHeld({ bytes, table, count }: PackedBatch, length: number): boolean {
  return bytes.length === length && table.length >= count * TABLE_STRIDE;
}

/** Throws `ReleasedError` where it is not. */
export function checkHeld(batch: PackedBatch, length: number): void {
  if (!isHeld(batch, length)) throw new ReleasedError();
}
