/** Addresses as people write them: `host:port`, `[v6]:port`, `:port` (to listen on every interface), `unix:/path`. */
import { isIPv6 } from "node:net";
import { AddressError } from "../../errors/index.ts";

export type Address =
  | { readonly kind: "tcp"; readonly host: string; readonly port: number }
  | { readonly kind: "unix"; readonly path: string };

/** The kernel's `sun_path` holds 108 bytes with the terminator (104 on macOS). */
const UNIX_PATH_BYTES_MAX = process.platform === "darwin" ? 103 : 107;

/** Throws `AddressError` with what was wrong. `forListening` permits an empty host and port 0. */
export function parseAddress(text: string, forListening = false): Address {
  if (typeof text !== "string") throw new AddressError(`an address is text, got ${typeof text}`);
  const given = JSON.stringify(text);
  const trimmed = text.trim();
  if (trimmed.startsWith("unix:")) {
    const path = trimmed.slice("unix:".length);
    if (path === "" || path.includes("\0"))
      throw new AddressError(`address ${given}: a path must follow unix:`);
    if (Buffer.byteLength(path) > UNIX_PATH_BYTES_MAX) {
      throw new AddressError(`address ${given}: a unix socket path has at most ${UNIX_PATH_BYTES_MAX} bytes`);
    }
    return { kind: "unix", path };
  }
  const match = /^(?:\[([0-9a-fA-F:.]+(?:%[\w.-]+)?)\]|([^\s:/[\]]*)):(\d{1,5})$/.exec(trimmed);
  if (match === null || (match[1] !== undefined && !isIPv6(match[1])))
    throw new AddressError(`address ${given}: host:port, [v6]:port or unix:/path is needed`);
  const host = match[1] ?? match[2] ?? "";
  const port = Number(match[3]);
  if (port > 65_535) throw new AddressError(`address ${given}: a port is at most 65535`);
  if (!forListening && port === 0) throw new AddressError(`address ${given}: port 0 is only for listening`);
  if (!forListening && host === "") throw new AddressError(`address ${given}: a host is needed`);
  return { kind: "tcp", host: host === "" ? "::" : host, port };
}

export function formatAddress(address: Address): string {
  if (address.kind === "unix") return `unix:${address.path}`;
  return formatHostPort(address.host, address.port);
}

export function formatHostPort(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
