/**
 * @luxfi/zap: one interface, `Transport`, and the best implementation of it that this host can run.
 *
 * Start at `pick()`.
 */
import packageJson from "../package.json" with { type: "json" };
import { pick } from "./transport/pick.ts";
import { registered } from "./transport/probe.ts";

/** The version of this package. */
export const VERSION: string = packageJson.version;

export * from "./errors/index.ts";
export * from "./message/index.ts";
export * from "./kernels/index.ts";
export type { Buffer, BufferAllocator, Owner } from "./memory/index.ts";
export * from "./transport/index.ts";
export {
  DEFAULT_LIMITS,
  type Limits,
  type Pem,
  type PortStats,
  type QueueStats,
  type TlsOptions,
} from "./wire/index.ts";

/** The names that the Go package has, for people who come from there. */
export { pick as Pick, registered as Registered };
