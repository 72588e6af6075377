/** `batchVerify` and its kin: from what a caller gives to a backend's job, and from its codes to answers. */
import { AbortedError, ZapError } from "../errors/index.ts";
import { checkPacked, packing } from "./batch.ts";
import {
  CODE,
  REASONS,
  type Item,
  type Job,
  type MlDsaScheme,
  type PackedBatch,
  type Scheme,
  type SlhDsaScheme,
  type Verdict,
} from "./contract.ts";
import {
  checkParams,
  checkScheme,
  type BlsOptions,
  type ContextOptions,
  type OptionsOf,
  type Secp256k1Options,
  type VerifyOptions,
} from "./options.ts";
import { chooseBackend, wantedBackend } from "./registry.ts";

/** What a call takes: a list of items, or a packed batch. */
export type Batch = readonly Item[] | PackedBatch;

/** The answer: a boolean per item, or, with the option `reasons`, a `Verdict`. */
export type Answer<Options> = Options extends { readonly reasons: true } ? Verdict[] : boolean[];

/** The event loop gets its turn after so many milliseconds of copying or answering. */
const TURN_MILLIS = 4;
/** Answers that are made between two looks at the clock. */
const ANSWERS = 8_192;

/**
 * Verifies every signature of `batch` and resolves with one answer per item, in order. A malformed item is false, with its reason on
 * request, and does not touch its neighbours; an empty batch is an empty answer. The bytes are read in place where they can be and must
 * not change until then. Rejects with `ConfigError` for a scheme, an option or a batch that is none, `NotAvailableError` where the
 * backend that was asked for does not serve the scheme here, `AbortedError` where the signal fires, another `ZapError` where the work
 * cannot be finished; never with half an answer.
 */
export async function batchVerify<S extends Scheme, const Options extends OptionsOf<S> = OptionsOf<S>>(
  scheme: S,
  batch: Batch,
  options?: Options,
): Promise<Answer<Options>> {
  const given: VerifyOptions = options ?? {};
  const codes = await verifyCodes(checkScheme(scheme), batch, given);
  return (await answers(codes, given.reasons ?? false)) as Answer<Options>;
}

/** Ed25519: keys of 32 bytes, signatures of 64. */
export function batchVerifyEd25519<const Options extends VerifyOptions = VerifyOptions>(
  batch: Batch,
  options?: Options,
): Promise<Answer<Options>> {
  return call("ed25519", batch, options);
}

/** ECDSA over secp256k1: keys of 33 or 65 bytes, signatures of 64 bytes or in DER. */
export function batchVerifySecp256k1<const Options extends Secp256k1Options = Secp256k1Options>(
  batch: Batch,
  options?: Options,
): Promise<Answer<Options>> {
  return call("secp256k1", batch, options);
}

/** BLS12-381: keys of 48 bytes, signatures of 96. */
export function batchVerifyBLS<const Options extends BlsOptions = BlsOptions>(
  batch: Batch,
  options?: Options,
): Promise<Answer<Options>> {
  return call("bls12-381", batch, options);
}

/** ML-DSA, in one of its three sets. */
export function batchVerifyMLDSA<const Options extends ContextOptions = ContextOptions>(
  scheme: MlDsaScheme,
  batch: Batch,
  options?: Options,
): Promise<Answer<Options>> {
  return call(scheme, batch, options, "ml-dsa-");
}

/** SLH-DSA, in one of its twelve sets. */
export function batchVerifySLHDSA<const Options extends ContextOptions = ContextOptions>(
  scheme: SlhDsaScheme,
  batch: Batch,
  options?: Options,
): Promise<Answer<Options>> {
  return call(scheme, batch, options, "slh-dsa-");
}

async function call<Options extends VerifyOptions>(
  scheme: Scheme,
  batch: Batch,
  options: Options | undefined,
  family = "",
): Promise<Answer<Options>> {
  const given: VerifyOptions = options ?? {};
  const codes = await verifyCodes(checkScheme(scheme, family), batch, given);
  return (await answers(codes, given.reasons ?? false)) as Answer<Options>;
}

async function verifyCodes(scheme: Scheme, batch: Batch, options: VerifyOptions): Promise<Uint8Array> {
  const params = checkParams(scheme, options);
  const { signal, onDeviceError = warn } = options;
  const wanted = wantedBackend(options.backend);
  const backend = chooseBackend(scheme, wanted);
  throwIfAborted(signal);
  const packed = checkPacked(Array.isArray(batch) ? await packInTurns(batch, signal) : batch);
  const codes = new Uint8Array(packed.count);
  if (packed.count === 0) return codes;
  const job: Job = { scheme, batch: packed, params, codes, signal, forced: wanted !== null, onDeviceError };
  try {
    await backend.run(job);
  } catch (error) {
    if (error instanceof ZapError) throw error;
    const text = error instanceof Error ? error.message : String(error);
    throw new ZapError("ERR_ZAP_VERIFY", `${backend.name} cannot verify ${scheme}: ${text}`, {
      cause: error,
    });
  }
  return codes;
}

/** The list as one piece of memory, made in turns with the event loop. */
async function packInTurns(items: readonly Item[], signal: AbortSignal | undefined): Promise<PackedBatch> {
  const steps = packing(items, "auto");
  const turns = new Turns();
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
    await turns.next();
    throwIfAborted(signal);
  }
}

async function answers(codes: Uint8Array, reasons: boolean): Promise<boolean[] | Verdict[]> {
  return reasons ? each(codes, verdictOf) : each(codes, (code) => code === CODE.valid);
}

async function each<Value>(codes: Uint8Array, answerOf: (code: number) => Value): Promise<Value[]> {
  const all: Value[] = [];
  const turns = new Turns();
  for (let start = 0; start < codes.length; start += ANSWERS) {
    if (start > 0) await turns.next();
    for (const code of codes.subarray(start, start + ANSWERS)) all.push(answerOf(code));
  }
  return all;
}

/** One for each reason, and frozen: an answer of a million items holds no million objects. */
const VERDICTS: readonly Verdict[] = REASONS.map((reason) =>
  Object.freeze({ valid: reason === "valid", reason }),
);

function verdictOf(code: number): Verdict {
  const verdict = VERDICTS[code];
  if (verdict === undefined) throw new ZapError("ERR_ZAP_VERIFY", `a backend answered with the code ${code}`);
  return verdict;
}

/** Lets the event loop run when a turn has taken long enough. */
class Turns {
  #start = performance.now();

  async next(): Promise<void> {
    if (performance.now() - this.#start < TURN_MILLIS) return;
    await new Promise<void>((resolve) => setImmediate(resolve));
    this.#start = performance.now();
  }
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new AbortedError("batchVerify", signal.reason);
}

/** Where nobody asked to be told: a failing device must not go unnoticed. */
function warn(error: ZapError): void {
  process.emitWarning(error.message, { type: "ZapWarning", code: error.code });
}
