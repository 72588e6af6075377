/** Which device, and how long it may take: as an operator sets it. */
import { ConfigError } from "../errors/index.ts";

type Env = Readonly<Record<string, string | undefined>>;

const DEFAULT_DEVICE_MILLIS = 10_000;
/** An hour. A driver that has not come back by then will not. */
const MAX_DEVICE_MILLIS = 3_600_000;
/** More than any machine has; a number above it is a typing error. */
const MAX_DEVICE = 1_023;

/**
 * `ZAP_CUDA_DEVICE`: which of the CUDA devices that this process can see, counted from 0; 0 where it is not set. Throws `ConfigError` for
 * anything but a decimal number.
 */
export function cudaDeviceIndex(env: Env = process.env): number {
  return decimal(env, "ZAP_CUDA_DEVICE", 0, 0, MAX_DEVICE);
}

/**
 * `ZAP_DEVICE_MILLIS`: how long one call into a GPU's driver may take before its device counts as hung, in milliseconds; 10,000
 * where it is not set. Throws `ConfigError` for anything but a decimal number from 1 to 3,600,000.
 */
export function deviceMillis(env: Env = process.env): number {
  return decimal(env, "ZAP_DEVICE_MILLIS", DEFAULT_DEVICE_MILLIS, 1, MAX_DEVICE_MILLIS);
}

function decimal(env: Env, name: string, byDefault: number, least: number, most: number): number {
  const text = env[name]?.trim() ?? "";
  if (text === "") return byDefault;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  const shown = JSON.stringify(text.slice(0, 60));
  throw new ConfigError(`${name} is ${shown}; it takes a decimal number from ${least} to ${most}`);
}
