/** Which device, and how long it may take: as an operator sets it. */
import { readDecimal, type Env } from "../settings/index.ts";

const DEFAULT_DEVICE_MILLIS = 10_000;
/** An hour. A driver that has not come back by then will not. */
const MAX_DEVICE_MILLIS = 3_600_000;
/** More than any machine has; a number above it is a typing error. */
const MAX_DEVICE = 1_023;

/**
 * `ZAP_CUDA_DEVICE`: which of the CUDA devices that this process can see, counted from 0; 0 where it is not set. Throws `ConfigError` for
 * anything but a decimal number from 0 to 1,023.
 */
export function cudaDeviceIndex(env: Env = process.env): number {
  return readDecimal(env, "ZAP_CUDA_DEVICE", { byDefault: 0, least: 0, most: MAX_DEVICE });
}

/**
 * `ZAP_DEVICE_MILLIS`: how long one call into a GPU's driver may take before its device counts as hung, in milliseconds; 10,000
 * where it is not set. Throws `ConfigError` for anything but a decimal number from 1 to 3,600,000.
 */
export function deviceMillis(env: Env = process.env): number {
  const range = { byDefault: DEFAULT_DEVICE_MILLIS, least: 1, most: MAX_DEVICE_MILLIS };
  return readDecimal(env, "ZAP_DEVICE_MILLIS", range);
}
