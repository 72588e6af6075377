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
  /** The domain separation tag, 1 to 255 characters of ASCII. Default: Ethereum's, `BLS_POP`. */
  readonly ciphersuite?: string | undefined;
  /** What an item is. Default: `single`. `same-message` is refused with `BLS_NUL` and `BLS_AUG`, which do not have it. */
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

type AnyOptions = Secp256k1Options & BlsOptions & ContextOptions;

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

/** The parameters that `options` mean for `scheme`. Throws `ConfigError` for an option that it does not have, or with a bad value. */
export function checkParams(scheme: Scheme, options: VerifyOptions): Params {
  const own = OWN.find(([prefix]) => scheme.startsWith(prefix))?.[1] ?? [];
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || COMMON.includes(name) || own.some((known) => known === name)) continue;
    const takes = [...own, ...COMMON].join(", ");
    throw new ConfigError(`${scheme} has no option ${shown(name)}; it takes ${takes}`);
  }
  checkCommon(options);
  const { context, digest, encoding, lowS, ciphersuite, form } = options as AnyOptions;
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

function checkCommon({ signal, reasons, onDeviceError }: VerifyOptions): void {
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new ConfigError(`signal is ${shown(signal)}; it takes an AbortSignal`);
  oneOf("reasons", reasons, [true, false], false);
  if (onDeviceError !== undefined && typeof onDeviceError !== "function")
    throw new ConfigError(`onDeviceError is ${shown(onDeviceError)}; it takes a function`);
}

function oneOf<Value>(
  name: string,
  value: Value | undefined,
  allowed: readonly Value[],
  byDefault: Value,
): Value {
  if (value === undefined) return byDefault;
  if (allowed.includes(value)) return value;
  throw new ConfigError(`${name} is ${shown(value)}; it takes ${allowed.join(", ")}`);
}

/** A copy, so that the caller may change its own while the batch is verified. */
function checkContext(context: unknown): Uint8Array {
  if (!isUint8Array(context)) throw new ConfigError(`context is ${shown(context)}; it takes a Uint8Array`);
  if (context.length > CONTEXT_BYTES)
    throw new ConfigError(`context has ${context.length} bytes; it takes at most ${CONTEXT_BYTES}`);
  return new Uint8Array(context);
}

function checkCiphersuite(ciphersuite: unknown): string {
  if (typeof ciphersuite === "string" && /^[\x21-\x7e]{1,255}$/.test(ciphersuite)) return ciphersuite;
  throw new ConfigError(
    `ciphersuite is ${shown(ciphersuite)}; it takes a domain separation tag of 1 to 255 ASCII characters`,
  );
}

function shown(value: unknown): string {
  return typeof value === "string"
    ? JSON.stringify(value.slice(0, 60))
    : Bun.inspect(value, { depth: 0 }).slice(0, 60);
}
