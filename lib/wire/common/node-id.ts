/** Node ids: how every wire names a node. */
import { ConfigError } from "../../errors/index.ts";

export const NODE_ID_BYTES_MAX = 60;

const encoder = new TextEncoder();

/** Throws `ConfigError` unless `nodeId` is 1 to 60 bytes of UTF-8 without control characters. */
export function checkNodeId(nodeId: string, what: string): void {
  if (typeof nodeId !== "string" || nodeId === "") throw new ConfigError(`${what}: a node id is needed`);
  const bytes = encoder.encode(nodeId).length;
  if (bytes > NODE_ID_BYTES_MAX) {
    throw new ConfigError(`${what}: a node id has at most ${NODE_ID_BYTES_MAX} bytes, got ${bytes}`);
  }
  if (/[\u0000-\u001f\u007f]/.test(nodeId) || !nodeId.isWellFormed()) {
    throw new ConfigError(`${what}: a node id has no control characters or lone surrogates`);
  }
}
