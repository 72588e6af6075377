/** The size of the unified-memory pool, as an operator sets it. */
import { ConfigError } from "../errors/index.ts";
import type { Env } from "../settings/index.ts";

const DEFAULT_POOL_BYTES = 4 * 1024 ** 3;

/**
 * `ZAP_UMA_POOL_BYTES`: decimal bytes, 0 for no bound; 4 GiB where it is not set. Throws `ConfigError` for anything else: a typing
 * error must not silently become the default.
 */
export function umaPoolBytes(env: Env = process.env): number {
  const text = env["ZAP_UMA_POOL_BYTES"]?.trim() ?? "";
  if (text === "") return DEFAULT_POOL_BYTES;
  const bytes = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(bytes)) return bytes;
  throw new ConfigError(
    `ZAP_UMA_POOL_BYTES is ${JSON.stringify(text.slice(0, 60))}; it takes decimal bytes, 0 for no bound`,
  );
}
