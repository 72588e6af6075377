/** Every environment variable whose value can be wrong, looked at before anything is opened. */
import { cudaDeviceIndex, debugMode, deviceMillis, umaPoolBytes } from "../memory/index.ts";
import { readFlag, type Env } from "../settings/index.ts";
import { dpdkEnvironment, gpudirectEnvironment } from "../wire/index.ts";
import { isQuiet } from "./log.ts";

/** `ZAP_TRANSPORT_STRICT`. Throws `ConfigError` for a value that is neither yes nor no. */
export function isStrict(env: Env = process.env): boolean {
  return readFlag(env, "ZAP_TRANSPORT_STRICT");
}

/**
 * Throws `ConfigError` that names the first variable with a value that cannot be used, whichever transport it is for: a typing error is
 * found today, not with the next GPU. `pick` and `resolveSelection` ask this first, so `zap-info` says what `pick` would.
 */
export function checkSettings(env: Env = process.env): void {
  const readers = [
    isQuiet,
    isStrict,
    umaPoolBytes,
    cudaDeviceIndex,
    deviceMillis,
    debugMode,
    dpdkEnvironment,
    gpudirectEnvironment,
  ];
  for (const read of readers) read(env);
}
