/**
 * TLS for the sockets wire: both sides show a certificate of the given authorities, and the node id must stand in it.
 *
 * Bun's `handshake` callback says "success" for a stranger's certificate, so every decision here rests on the verification
 * result, never on that flag.
 */
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { ConfigError } from "../../errors/index.ts";
import type { Pem, TlsOptions } from "../settings.ts";

const TLS_1_3 = 0x0304;

/** The options for `Bun.listen` and `Bun.connect`. */
export interface BunTls {
  readonly cert: Pem;
  readonly key: Pem;
  readonly ca: Pem;
  readonly requestCert: true;
  readonly rejectUnauthorized: boolean;
  readonly minVersion: number;
}

/** Throws `ConfigError` unless certificate, key and authorities are all there: an empty object must never mean plaintext. */
export function resolveTls(given: TlsOptions, side: "listen" | "connect"): BunTls {
  if (typeof given !== "object" || given === null) {
    throw new ConfigError("tls: an object with cert, key and ca is needed; leave tls out for plaintext");
  }
  for (const name of ["cert", "key", "ca"] as const) {
    if (isEmpty(given[name])) {
      throw new ConfigError(
        `tls.${name} is missing: TLS needs cert, key and ca; leave tls out for plaintext`,
      );
    }
  }
  try {
    // A certificate that cannot be read is found now, and not with the first peer.
    createSecureContext({ cert: given.cert, key: given.key, ca: given.ca } as SecureContextOptions);
  } catch (cause) {
    // The text of the cause names the fault, never the key.
    const why = cause instanceof Error ? cause.message : "unreadable";
    throw new ConfigError(`tls: cert, key or ca cannot be used: ${why}`);
  }
  return {
    cert: given.cert,
    key: given.key,
    ca: given.ca,
    requestCert: true,
    // The dialler decides by itself in `verdict`: peers are named by node id, not by host name.
    rejectUnauthorized: side === "listen",
    minVersion: TLS_1_3,
  };
}

function isEmpty(pem: Pem | undefined): boolean {
  if (pem === undefined || pem === null) return true;
  if (typeof pem === "string" || pem instanceof Uint8Array) return pem.length === 0;
  return !Array.isArray(pem) || pem.length === 0 || pem.some((one) => isEmpty(one as Pem));
}

/** What of a Bun TLS socket this file reads. */
export interface VerifiedSocket {
  readonly authorized: boolean;
  getAuthorizationError(): unknown;
  getPeerCertificate(): unknown;
}

/** Null where the peer's certificate chain is good, else the reason. `error` is what the `handshake` callback was given. */
export function chainFault(socket: VerifiedSocket, dialled: boolean, error: unknown): string | null {
  if (socket.authorized && !error) return null;
  const code = codeOf(error) ?? codeOf(socket.getAuthorizationError());
  // The chain is checked before the host name, so this code means: good chain, and a name that is not a host's.
  if (dialled && code === "ERR_TLS_CERT_ALTNAME_INVALID") return null;
  return code ?? "no certificate that the authorities vouch for";
}

function codeOf(error: unknown): string | null {
  if (error && typeof error === "object") {
    if ("code" in error && typeof error.code === "string") return error.code;
    if (error instanceof Error) return error.message;
  }
  return typeof error === "string" ? error : null;
}

/** The names that a verified certificate gives its owner: common name, DNS and URI alternative names. */
export function certificateNames(socket: VerifiedSocket): ReadonlySet<string> {
  const names = new Set<string>();
  const certificate = socket.getPeerCertificate();
  if (typeof certificate !== "object" || certificate === null) return names;
  const { subject, subjectaltname } = certificate as { subject?: { CN?: unknown }; subjectaltname?: unknown };
  if (typeof subject?.CN === "string") names.add(subject.CN);
  // Names with special characters come quoted; a quoted name could smuggle in a separator, so none of that list is taken.
  if (typeof subjectaltname === "string" && !subjectaltname.includes('"')) {
    for (const entry of subjectaltname.split(", ")) {
      if (entry.startsWith("DNS:")) names.add(entry.slice(4));
      else if (entry.startsWith("URI:")) names.add(entry.slice(4));
    }
  }
  return names;
}
