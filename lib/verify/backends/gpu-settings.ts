/** What an operator can set about verification on a GPU. Read once, when the first batch comes. */
import { readDecimal, type Env } from "../../settings/index.ts";

const MIB = 1024 * 1024;

export interface GpuSettings {
  /**
   * `ZAP_VERIFY_GPU_LEAST`: batches of fewer items stay on the CPU, 1 to 4,294,967,295. Null where nothing is set: it is measured when the device
   * is opened.
   */
  readonly leastItems: number | null;
  /**
   * `ZAP_VERIFY_GPU_BYTES`: unified memory that batches are copied to for the GPU, 1 MiB to 4 GiB less one byte; default 64 MiB. A larger batch goes through
   * it in slices; a single item that is larger has memory of its own for as long as it takes.
   */
  readonly stageBytes: number;
}

/** The bound on items that is set; null where none is, or none that can be used. */
export function leastItemsIn(env: Env): number | null {
  try {
    return gpuSettings(env).leastItems;
  } catch {
    return null;
  }
}

/** Throws `ConfigError` for a value that cannot be used. */
export function gpuSettings(env: Env): GpuSettings {
  return {
    leastItems:
      readDecimal(env, "ZAP_VERIFY_GPU_LEAST", { byDefault: 0, least: 1, most: 0xffff_ffff }) || null,
    stageBytes: readDecimal(env, "ZAP_VERIFY_GPU_BYTES", {
      byDefault: 64 * MIB,
      least: MIB,
      most: 4 * 1024 * MIB - 1,
    }),
  };
}
