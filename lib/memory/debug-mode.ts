/** Whether mistakes with managed memory are looked for, at a price. */
import { ConfigError } from "../errors/index.ts";

/** `ZAP_DEBUG`: 1, true, yes; 0, false, no, or nothing. Throws `ConfigError` for anything else. */
export function debugMode(env: Readonly<Record<string, string | undefined>> = process.env): boolean {
  const flag = (env["ZAP_DEBUG"] ?? "").trim().toLowerCase();
  if (["1", "true", "yes"].includes(flag)) return true;
  if (["", "0", "false", "no"].includes(flag)) return false;
  throw new ConfigError(
    `ZAP_DEBUG is ${JSON.stringify(flag.slice(0, 60))}; it takes 1, true, yes, 0, false or no`,
  );
}
