/** The options of a sockets wire, checked. */
import type { WireOptions } from "../contract.ts";
import { resolveCommon, type CommonOptions } from "../common/options.ts";
import { resolveTls, type BunTls } from "./tls.ts";

export interface ResolvedOptions extends CommonOptions {
  /** Null for plaintext. */
  readonly tls: { readonly listen: BunTls; readonly connect: BunTls } | null;
}

/** Throws `ConfigError` or `AddressError`, which names the option. */
export function resolveOptions(options: WireOptions): ResolvedOptions {
  const { tls } = options;
  const common = resolveCommon(options);
  return {
    ...common,
    tls:
      tls === undefined ? null : { listen: resolveTls(tls, "listen"), connect: resolveTls(tls, "connect") },
  };
}
