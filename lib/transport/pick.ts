/** `pick`: opens the best transport that this host can really run, and says how it came to it. */
import { ConfigError, NotAvailableError } from "../errors/index.ts";
import type { Env } from "../settings/index.ts";
import type { Probe, Transport, TransportOptions } from "./contract.ts";
import { isQuiet, logEvents, logLine } from "./log.ts";
import { probeRow } from "./probe.ts";
import { thisHost } from "./host.ts";
import { REGISTRY } from "./registry.ts";
import { resolveSelection } from "./resolve.ts";
import { checkSettings } from "./settings.ts";

export interface PickOptions extends TransportOptions {
  /** Fail with `NotAvailableError` where the preferred transport is not available. Default: `ZAP_TRANSPORT_STRICT`, else false. */
  readonly strict?: boolean;
  /** Default: the environment of the process. */
  readonly env?: Env;
}

let logged = false;

/**
 * Opens the best available transport. A blank `preferred` falls back to `ZAP_TRANSPORT`; case and surrounding blanks do not
 * matter; `auto`, and nothing named at all, mean best available. A preferred transport that is not available falls through to the next below it in
 * rank, ending at `default`; what was tried and why it failed is in the result's `selection`.
 *
 * Rejects with `UnknownTransportError` (lists the known names), `NotAvailableError` (`strict`), `ConfigError` or `AddressError`
 * (an option or a variable that cannot be used); nothing is left open. The first success of a process logs one line on standard error.
 */
export async function pick(preferred?: string, options: PickOptions = {}): Promise<Transport> {
  if (typeof options !== "object" || options === null)
    throw new ConfigError("pick: options must be an object");
  const { strict, env = process.env, ...rest } = options;
  if (strict !== undefined && typeof strict !== "boolean")
    throw new ConfigError("strict: true or false is needed");
  checkSettings(env);
  const host = thisHost(env);
  const failed: Probe[] = [];
  for (;;) {
    const choice = { env, probes: failed, ...(strict === undefined ? {} : { strict }) };
    const selection = await resolveSelection(preferred, choice);
    const open = REGISTRY[selection.name].open;
    try {
      if (open === null) throw new NotAvailableError(`this build cannot open ${selection.name}`);
      const transport = await open({ onEvent: logEvents(env), ...rest }, selection, host);
      if (!isQuiet(env)) announce(transport);
      return transport;
    } catch (error) {
      if (!(error instanceof NotAvailableError) || selection.name === "default") throw error;
      // The probe promised too much; go on as if it had said no.
      const prerequisite = { name: "open", met: false, seen: error.message, fix: "" };
      failed.push({
        ...(await probeRow(selection.name, host)),
        available: false,
        caps: null,
        prerequisites: [prerequisite],
      });
    }
  }
}

function announce(transport: Transport): void {
  if (logged) return;
  logged = true;
  const { name, reason, tried } = transport.selection;
  logLine("info", "transport_picked", { transport: name, reason, tried, caps: transport.caps });
}
