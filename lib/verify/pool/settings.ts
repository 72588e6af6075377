/** What an operator can set about the pool. Read once, when the first batch comes. */
import { availableParallelism } from "node:os";
import { readDecimal, type Env } from "../../settings/index.ts";

const MIB = 1024 * 1024;

export interface PoolSettings {
  /**
   * `ZAP_VERIFY_WORKERS`: at most this many workers, 0 to 256; default one for each processor. With 0 there are none, and the calling thread
   * verifies everything, in stretches.
   */
  readonly workers: number;
  /**
   * `ZAP_VERIFY_POOL_BYTES`: what the pool may hold of copies of batches that are not in shared memory, 8 MiB to 16 GiB; default 32 MiB. A
   * single item larger than an eighth of it has a copy of its own on top, as large as the item: at most two such copies for a batch, eight in all.
   */
  readonly poolBytes: number;
  /** `ZAP_VERIFY_IDLE_MILLIS`: workers end after this long without work, 1 to 86,400,000; default 10,000. */
  readonly idleMillis: number;
}

/** Throws `ConfigError` for a value that cannot be used. */
export function poolSettings(env: Env): PoolSettings {
  return {
    workers: readDecimal(env, "ZAP_VERIFY_WORKERS", {
      byDefault: Math.min(256, availableParallelism()),
      least: 0,
      most: 256,
    }),
    poolBytes: readDecimal(env, "ZAP_VERIFY_POOL_BYTES", {
      byDefault: 32 * MIB,
      least: 8 * MIB,
      most: 16 * 1024 * MIB,
    }),
    idleMillis: readDecimal(env, "ZAP_VERIFY_IDLE_MILLIS", {
      byDefault: 10_000,
      least: 1,
      most: 86_400_000,
    }),
  };
}
