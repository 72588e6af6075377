/** What a device of unified memory answers when it is asked. The one part of the probes that loads a vendor's library. */
import { ConfigError } from "../../errors/index.ts";
import { cText, readPrerequisites, type Shim, type UmaShimName } from "../../ffi/index.ts";
import { deviceLimits, type DeviceOptions } from "../../memory/index.ts";
import type { Prerequisite } from "../contract.ts";
import type { Host } from "../host.ts";
import { missing } from "./prerequisite.ts";
import { PROBE_ROWS, probeMemory } from "./shims.ts";

/**
 * The rows of the shim's own probe, and one for settings that it cannot be called with. A driver that hangs is a row too, after
 * `ZAP_DEVICE_MILLIS`; until then the caller waits.
 */
export function deviceRows(host: Host, options: DeviceOptions, shim: Shim<UmaShimName>): Prerequisite[] {
  let limits;
  try {
    limits = deviceLimits(options, host.env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [missing("settings", error.message, "Correct the variable, or take it out of the environment.")];
  }
  const { runtime, support = "" } = options;
  const { index, timeoutMillis } = limits;
  const memory = probeMemory();
  const status = shim.call.probe(cText(runtime), cText(support), index, timeoutMillis, memory, PROBE_ROWS);
  const count = shim.check(status, "probing the device");
  return readPrerequisites(memory, count);
}
