/**
 * Settings: how an environment variable is read. What a variable means, its name and its default, are with the part that it is for
 * (`memory/pool-bytes.ts`, `memory/device-settings.ts`, `memory/debug-mode.ts`, `transport/log.ts`, `transport/resolve.ts`).
 *
 * What lives here: `flag.ts` (yes or no) and `decimal.ts` (a number). A value that cannot be used is always an error: a typing error must not
 * silently become the default. May import: errors.
 * Start at `flag.ts`.
 */
export type { Env } from "./env.ts";
export { readFlag } from "./flag.ts";
export { readDecimal } from "./decimal.ts";
