/** Options of a call: what each scheme takes, checked and completed to `Params`. */
import { isUint8Array } from "node:util/types";
import { ConfigError } from "../errors/index.ts";
import type { ZapError } from "../errors/index.ts";
import {
  DEFAULT_PARAMS,
  SCHEMES,
  type BackendName,
  type BlsForm,
  type Digest,
  type EcdsaEncoding,
  type Params,
  type Scheme,
} from "./contract.ts";
import { isReleased, lengthOf, plainBytes } from "./views.ts";

/** What every call takes. */
export interface VerifyOptions {
  /** The backend that must verify; `auto` picks. Rejects where it does not serve the scheme here. Default: `ZAP_VERIFY_BACKEND`, or `auto`. */
  readonly backend?: BackendName | "auto" | undefined;
  /** Rejects with `AbortedError` soon after it fires. */
  readonly signal?: AbortSignal | undefined;
  /** True: the answer is a `Verdict` per item, with its reason. Default: false, a boolean per item. */
  readonly reasons?: boolean | undefined;
  /** Told when a device failed and the CPU verified in its place. Default: a process warning. */
  readonly onDeviceError?: ((error: ZapError) => void) | undefined;
}

/** ML-DSA and SLH-DSA. */
export interface ContextOptions extends VerifyOptions {
  /** The context string of FIPS 204 and FIPS 205, 0 to 255 bytes. Default: empty. */
  readonly context?: Uint8Array | undefined;
}

export interface Secp256k1Options extends VerifyOptions {
  /** What a message is. Default: `given`, a digest of 32 bytes. */
  readonly digest?: Digest | undefined;
  /** How a signature is written. Default: `compact`, 64 bytes. */
  readonly encoding?: EcdsaEncoding | undefined;
  /** Whether S above half the order is refused. Default: true. */
  readonly lowS?: boolean | undefined;
}

export interface BlsOptions extends VerifyOptions {
  /** The domain separation tag, 1 to 255 printable characters of ASCII, the blank too. Default: Ethereum's, `BLS_POP`. */
  readonly ciphersuite?: string | undefined;
  /** What an item is. Default: `single`. `same-message` is refused with a tag that ends in `_NUL_` or `_AUG_`: those suites do not have it. */
  readonly form?: BlsForm | undefined;
}

/** The options of a scheme. */
export type OptionsOf<S extends Scheme> = S extends "ed25519"
  ? VerifyOptions
  : S extends "secp256k1"
    ? Secp256k1Options
    : S extends "bls12-381"
      ? BlsOptions
      : ContextOptions;

/** The options of one call, each read once, and complete. */
export interface CallOptions {
  readonly params: Params;
  /** As it was given; undefined: nothing was. */
  readonly backend: string | undefined;
  readonly signal: AbortSignal | undefined;
  readonly reasons: boolean;
  readonly onDeviceError: ((error: ZapError) => void) | undefined;
}

const COMMON = ["backend", "signal", "reasons", "onDeviceError"];
const OWN: readonly (readonly [prefix: string, names: readonly (keyof Params)[]])[] = [
  ["ed25519", []],
  ["secp256k1", ["digest", "encoding", "lowS"]],
  ["bls12-381", ["ciphersuite", "form"]],
  ["ml-dsa-", ["context"]],
  ["slh-dsa-", ["context"]],
];

const DIGESTS: readonly Digest[] = ["given", "sha256", "keccak-256"];
const ENCODINGS: readonly EcdsaEncoding[] = ["compact", "der"];
const FORMS: readonly BlsForm[] = ["single", "same-message", "aggregate"];
const CONTEXT_BYTES = 255;

/** `scheme` as a `Scheme` whose name starts with `family`. Throws `ConfigError`, which lists what there is. */
export function checkScheme(scheme: unknown, family = ""): Scheme {
  const known = SCHEMES.filter((name) => name.startsWith(family));
  const found = known.find((name) => name === scheme);
  if (found !== undefined) return found;
  throw new ConfigError(`no signature scheme is named ${shown(scheme)} here; there are ${known.join(", ")}`);
}

/**
 * What `options` mean for `scheme`; undefined is none. Throws `ConfigError` where they are no object or cannot be read, for an option that the
 * scheme does not have, and for a bad value.
 */
export function checkOptions(scheme: Scheme, options: unknown): CallOptions {
  const given = readOptions(scheme, options);
  const { backend, signal, reasons, onDeviceError } = given;
  if (backend !== undefined && typeof backend !== "string")
    throw new ConfigError(`the option backend is ${shown(backend)}; it takes the name of one`);
  if (onDeviceError !== undefined && typeof onDeviceError !== "function")
    throw new ConfigError(`onDeviceError is ${shown(onDeviceError)}; it takes a function`);
  return {
    params: checkParams(given),
    backend,
    signal: signal === undefined ? undefined : checkSignal(signal),
    reasons: oneOf("reasons", reasons, [true, false], false),
    onDeviceError: onDeviceError as CallOptions["onDeviceError"],
  };
}

type Given = Readonly<Partial<Record<string, unknown>>>;

/** Every option once, by name. */
function readOptions(scheme: Scheme, options: unknown): Given {
  if (options === undefined) return {};
  if (typeof options !== "object" || options === null)
    throw new ConfigError(`the options are an object, not ${shown(options)}`);
  const own = OWN.find(([prefix]) => scheme.startsWith(prefix))?.[1] ?? [];
  const names: readonly string[] = [...own, ...COMMON];
  const given: Partial<Record<string, unknown>> = {};
  let unknown: string | undefined;
  try {
    for (const name of names) given[name] = (options as Given)[name];
    unknown = Object.keys(options).find(
      (name) => !names.includes(name) && (options as Given)[name] !== undefined,
    );
  } catch (cause) {
    throw new ConfigError("the options cannot be read", { cause });
  }
  if (unknown === undefined) return given;
  throw new ConfigError(`${scheme} has no option ${shown(unknown)}; it takes ${names.join(", ")}`);
}

function checkParams({ context, digest, encoding, lowS, ciphersuite, form }: Given): Params {
  const params: Params = {
    context: context === undefined ? DEFAULT_PARAMS.context : checkContext(context),
    digest: oneOf("digest", digest, DIGESTS, DEFAULT_PARAMS.digest),
    encoding: oneOf("encoding", encoding, ENCODINGS, DEFAULT_PARAMS.encoding),
    lowS: oneOf("lowS", lowS, [true, false], DEFAULT_PARAMS.lowS),
    ciphersuite: ciphersuite === undefined ? DEFAULT_PARAMS.ciphersuite : checkCiphersuite(ciphersuite),
    form: oneOf("form", form, FORMS, DEFAULT_PARAMS.form),
  };
  if (params.form === "same-message" && /_(NUL|AUG)_$/.test(params.ciphersuite))
    throw new ConfigError(`the form same-message needs proofs of possession; ${params.ciphersuite} has none`);
  return params;
}

const SIGNAL = AbortSignal.prototype;
const isAborted = Object.getOwnPropertyDescriptor(SIGNAL, "aborted")!.get!;

/** `signal`, or one that follows it where it has been meddled with. */
function checkSignal(signal: unknown): AbortSignal {
  try {
    // Throws for whatever only looks like one.
    isAborted.call(signal);
    const given = signal as AbortSignal;
    const isPlain = Object.getPrototypeOf(given) === SIGNAL && Reflect.ownKeys(given).length === 0;
    return isPlain ? given : AbortSignal.any([given]);
  } catch (cause) {
    throw new ConfigError(`signal is ${shown(signal)}; it takes an AbortSignal`, { cause });
  }
}

function oneOf<Value>(name: string, value: unknown, allowed: readonly Value[], byDefault: Value): Value {
  if (value === undefined) return byDefault;
  const found = allowed.find((each) => each === value);
  if (found !== undefined) return found;
  throw new ConfigError(`${name} is ${shown(value)}; it takes ${allowed.join(", ")}`);
}

/** A copy, so that the caller may change its own while the batch is verified. */
function checkContext(context: unknown): Uint8Array {
  if (!isUint8Array(context)) throw new ConfigError(`context is ${shown(context)}; it takes a Uint8Array`);
  if (isReleased(context)) throw new ConfigError("the context's bytes have been released");
  const length = lengthOf(context);
  if (length > CONTEXT_BYTES)
    throw new ConfigError(`context has ${length} bytes; it takes at most ${CONTEXT_BYTES}`);
  return new Uint8Array(plainBytes(context));
}

function checkCiphersuite(ciphersuite: unknown): string {
  if (typeof ciphersuite === "string" && /^[\x20-\x7e]{1,255}$/.test(ciphersuite)) return ciphersuite;
  throw new ConfigError(
    `ciphersuite is ${shown(ciphersuite)}; it takes a domain separation tag of 1 to 255 printable ASCII characters`,
  );
}

/** A value in an error's message. An object is not asked: what it says of itself may be anything. */
function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 60));
  if (typeof value === "object" && value !== null) return "an object";
  if (typeof value === "function") return "a function";
  return String(value).slice(0, 60);
}
