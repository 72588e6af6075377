/** Whether mistakes with managed memory are looked for, at a price. */
import { readFlag, type Env } from "../settings/index.ts";

/** `ZAP_DEBUG`: 1, true, yes; 0, false, no, or nothing. Throws `ConfigError` for anything else. */
export function debugMode(env: Env = process.env): boolean {
  return readFlag(env, "ZAP_DEBUG");
}
