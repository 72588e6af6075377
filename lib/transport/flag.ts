/** Environment variables that say yes or no. */
import { ConfigError } from "../errors/index.ts";

/** Throws `ConfigError` for a value that is neither. Not set, and set to nothing, is no. */
export function readFlag(name: string, value: string | undefined): boolean {
  const flag = (value ?? "").trim().toLowerCase();
  if (["1", "true", "yes"].includes(flag)) return true;
  if (["", "0", "false", "no"].includes(flag)) return false;
  throw new ConfigError(
    `${name} is ${JSON.stringify(value?.slice(0, 60))}; it takes 1, true, yes, 0, false or no`,
  );
}
