/**
 * Every error of the library: one class for each thing a caller can act on, each with a stable `code`.
 *
 * What lives here: the error classes and nothing else. May import: nothing.
 * Start at `ZapError`; match on `error.code` or on the class.
 */

/** The base of every error that this library throws, rejects with or reports in an event. */
export class ZapError extends Error {
  /** Stable identifier, `ERR_ZAP_...`; it never changes within a major version. */
  readonly code: string;

  constructor(code: string, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
    this.name = new.target.name;
  }
}

/** One step that a selection took on its way down the ranks, and what came of it. */
export interface TriedTransport {
  readonly name: string;
  /** `ok`, or the code of the error that ruled this transport out. */
  readonly code: string;
  /** One sentence for people: what was missing. */
  readonly reason: string;
}

/** A transport, or a feature of one, that this host cannot run. */
export class NotAvailableError extends ZapError {
  /** What a selection tried before it gave up; empty where nothing but the one thing was asked for. */
  readonly tried: readonly TriedTransport[];

  constructor(message: string, options?: { cause?: unknown; tried?: readonly TriedTransport[] }) {
    super("ERR_ZAP_NOT_AVAILABLE", message, options);
    this.tried = options?.tried ?? [];
  }
}

/** A transport name that no row of the registry has. */
export class UnknownTransportError extends ZapError {
  constructor(message: string) {
    super("ERR_ZAP_UNKNOWN_TRANSPORT", message);
  }
}

/** An option or environment variable with a value that cannot be used. */
export class ConfigError extends ZapError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("ERR_ZAP_CONFIG", message, options);
  }
}

/** An operation on something already closed. */
export class ClosedError extends ZapError {
  constructor(message: string) {
    super("ERR_ZAP_CLOSED", message);
  }
}

/** The caller's `AbortSignal` fired; `cause` is the signal's reason. `name` is `AbortError`, as elsewhere on the platform. */
export class AbortedError extends ZapError {
  constructor(what: string, reason: unknown) {
    super("ERR_ZAP_ABORTED", `${what} was aborted`, { cause: reason });
    this.name = "AbortError";
  }
}

/** Something did not happen within its time limit. */
export class TimeoutError extends ZapError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("ERR_ZAP_TIMEOUT", message, options);
  }
}

export type MessageErrorCode =
  | "ERR_ZAP_MESSAGE_SHORT"
  | "ERR_ZAP_MESSAGE_MAGIC"
  | "ERR_ZAP_MESSAGE_VERSION"
  | "ERR_ZAP_MESSAGE_SIZE"
  | "ERR_ZAP_MESSAGE_BUILD";

/** Bytes that are not a ZAP message, or a message that cannot be built as asked. */
export class MessageError extends ZapError {
  declare readonly code: MessageErrorCode;

  constructor(code: MessageErrorCode, message: string) {
    super(code, message);
  }
}

/** A message or frame above the `frameBytes` limit. */
export class FrameTooLargeError extends ZapError {
  constructor(message: string) {
    super("ERR_ZAP_FRAME_TOO_LARGE", message);
  }
}

/** A peer id that nobody has told us an address for and that has not dialled in. */
export class UnknownPeerError extends ZapError {
  constructor(message: string) {
    super("ERR_ZAP_UNKNOWN_PEER", message);
  }
}

/** A peer that could not be reached within the time limit; `cause` is the last attempt's error. */
export class PeerUnreachableError extends ZapError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("ERR_ZAP_PEER_UNREACHABLE", message, options);
  }
}

/** A connection that never became a peer: no or a bad hello, a wrong id, a certificate or an allow-list that says no. */
export class HandshakeError extends ZapError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("ERR_ZAP_HANDSHAKE", message, options);
  }
}

/** An established connection that ended other than by an orderly close. */
export class ConnectionLostError extends ZapError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("ERR_ZAP_CONNECTION_LOST", message, options);
  }
}

/** Messages that were handed over (their `send` resolved) and then could not be delivered. */
export class UndeliveredError extends ZapError {
  /** How many messages may not have reached the peer: those not written, and those written and not acknowledged. */
  readonly messages: number;

  constructor(message: string, messages: number, options?: { cause?: unknown }) {
    super("ERR_ZAP_UNDELIVERED", message, options);
    this.messages = messages;
  }
}

/** An address that cannot be parsed, bound or listened on. */
export class AddressError extends ZapError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("ERR_ZAP_ADDRESS", message, options);
  }
}

/** A documented limit that was reached; the message names the setting. */
export class LimitError extends ZapError {
  constructor(message: string) {
    super("ERR_ZAP_LIMIT", message);
  }
}

/** A native library of ours that cannot be used, or a call into it that failed. */
export class ShimError extends ZapError {
  /** Which library: `libzap_uma_cuda`, for example. */
  readonly library: string;
  /** The failed call's status by its name in `zap_shim.h`, such as `ZAP_E_MEMORY`; null where the library itself cannot be used. */
  readonly status: string | null;

  constructor(library: string, status: string | null, message: string, options?: { cause?: unknown }) {
    super("ERR_ZAP_SHIM", message, options);
    this.library = library;
    this.status = status;
  }
}

/** A buffer that the pool cannot give: a size that can never fit, or memory that is lost to it. */
export class PoolError extends ZapError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("ERR_ZAP_POOL", message, options);
  }
}

/** Memory that was touched, handed over or released while somebody else owned it. */
export class OwnerError extends ZapError {
  constructor(message: string) {
    super("ERR_ZAP_OWNER", message);
  }
}
