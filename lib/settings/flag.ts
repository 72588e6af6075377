/** Environment variables that say yes or no. */
import { ConfigError } from "../errors/index.ts";
import type { Env } from "./env.ts";

const YES = ["1", "true", "yes"];
const NO = ["", "0", "false", "no"];

/**
 * Whether the variable `name` says yes. Not set, and set to nothing, is no; case and surrounding blanks do not matter. Throws
 * `ConfigError` for a value that is neither.
 */
export function readFlag(env: Env, name: string): boolean {
  const value = env[name] ?? "";
  const flag = value.trim().toLowerCase();
  if (YES.includes(flag)) return true;
  if (NO.includes(flag)) return false;
  throw new ConfigError(
    `${name} is ${JSON.stringify(value.slice(0, 60))}; it takes 1, true, yes, 0, false or no`,
  );
}
