/** Environment variables that are a number. */
import { ConfigError } from "../errors/index.ts";
import type { Env } from "./env.ts";

export interface DecimalRange {
  readonly byDefault: number;
  readonly least: number;
  readonly most: number;
}

/** The variable `name`, in decimal digits alone; `byDefault` where it is not set. Throws `ConfigError` for anything else. */
export function readDecimal(env: Env, name: string, { byDefault, least, most }: DecimalRange): number {
  const text = env[name]?.trim() ?? "";
  if (text === "") return byDefault;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  const shown = JSON.stringify(text.slice(0, 60));
  throw new ConfigError(`${name} is ${shown}; it takes a decimal number from ${least} to ${most}`);
}
