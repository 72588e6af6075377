/** `batchVerify` and its kin: from what a caller gives to a backend's job, and from its codes to answers. */
import { AbortedError, ZapError } from "../errors/index.ts";
import { lendPlace } from "./backends/gpu-place.ts";
import { checkPacked, isList } from "./batch.ts";
import {
  CODE,
  REASONS,
  type Backend,
  type Item,
  type Job,
  type MlDsaScheme,
  type PackedBatch,
  type Scheme,
  type SlhDsaScheme,
  type Verdict,
} from "./contract.ts";
import {
  checkOptions,
  checkScheme,
  type BlsOptions,
  type ContextOptions,
  type OptionsOf,
  type Secp256k1Options,
  type VerifyOptions,
} from "./options.ts";
import { checkHeld, isHeld, ReleasedError } from "./held.ts";
import { packing } from "./packing.ts";
import { checkSettingsOnce, chooseBackend, wantedBackend } from "./registry.ts";
import { turns } from "./turns.ts";

/** What a call takes: a list of items, or a packed batch. */
export type Batch = readonly Item[] | PackedBatch;

/** The answer: a boolean per item, or, with the option `reasons`, a `Verdict`. */
export type Answer<Options> = Options extends { readonly reasons: true } ? Verdict[] : boolean[];

/** The event loop gets its turn after so many milliseconds of copying or answering. */
const TURN_MILLIS = 2;
/** Answers that are made between two looks at the clock. */
const ANSWERS = 8_192;

/**
 * Verifies every signature of `batch` and resolves with one answer per item, in order. A malformed item is false, with its reason on
 * request, and does not touch its neighbours; an empty batch is an empty answer. The bytes are read in place where they can be and must
 * not change until then. Rejects with `ConfigError` for a scheme, an option or a batch that is none, `LimitError` for more than 1,048,576 items and
 * for 4 GiB or more, `NotAvailableError` where the backend that was asked for does not serve the scheme here, `AbortedError` where the signal
 * fires, and another `ZapError` where the work cannot be finished, as when bytes are released meanwhile (`ERR_ZAP_VERIFY`); never with half an answer.
 */
export function batchVerify<S extends Scheme, const Options extends OptionsOf<S> = OptionsOf<S>>(
  scheme: S,
  batch: Batch,
  options?: Options,
): Promise<Answer<Options>> {
  return call(scheme, batch, options);
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
  const known = checkScheme(scheme, family);
  const { backend: named, params, signal, reasons, onDeviceError = warn } = checkOptions(known, options);
  checkSettingsOnce();
  const wanted = wantedBackend(named);
  const backend = chooseBackend(known, wanted);
  throwIfAborted(signal);
  // At once, in the turn that has seen the batch whole.
  const start = (packed: PackedBatch): Promise<Uint8Array> => {
    const codes = new Uint8Array(packed.count);
    const forced = wanted !== null;
    return runJob(backend, { scheme: known, batch: packed, params, codes, signal, forced, onDeviceError });
  };
  const codes = await (isList(batch) ? packInTurns(batch, signal, start) : start(checkPacked(batch)));
  return (await answers(codes, reasons)) as Answer<Options>;
}

/** Has the backend fill the job's codes. Rejects with a `ZapError`, whatever the backend rejects with. */
export async function runJob(backend: Backend, job: Job): Promise<Uint8Array> {
  const { scheme, batch, codes } = job;
  const { length } = batch.bytes;
  if (batch.count === 0) return codes;
  const giveBack = lendPlace(batch.bytes);
  try {
    await backend.run(job);
  } catch (error) {
    if (error instanceof AbortedError) throw error;
    // Whatever the backend made of it.
    if (!isHeld(batch, length)) throw new ReleasedError(error);
    if (error instanceof ZapError) throw error;
    const text = error instanceof Error ? error.message : String(error);
    throw new ZapError("ERR_ZAP_VERIFY", `${backend.name} cannot verify ${scheme}: ${text}`, {
      cause: error,
    });
  } finally {
    giveBack?.();
  }
  // The CPU reads the caller's bytes up to the end. A device has its own copy, or memory that it was lent.
  if (backend.name === "cpu") checkHeld(batch, length);
  return codes;
}

/** The list as one piece of memory, made in turns with the event loop, and then what `start` makes of it. */
async function packInTurns(
  items: readonly Item[],
  signal: AbortSignal | undefined,
  start: (batch: PackedBatch) => Promise<Uint8Array>,
): Promise<Uint8Array> {
  const steps = packing(items, "auto", true);
  const turn = turns(TURN_MILLIS);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return start(value);
    await turn();
    throwIfAborted(signal);
  }
}

async function answers(codes: Uint8Array, reasons: boolean): Promise<boolean[] | Verdict[]> {
  return reasons ? each(codes, verdictOf) : each(codes, (code) => code === CODE.valid);
}

async function each<Value>(codes: Uint8Array, answerOf: (code: number) => Value): Promise<Value[]> {
  // Made at once: one that grows is moved again and again, each time in one go.
  const all = new Array<Value>(codes.length);
  const turn = turns(TURN_MILLIS);
  for (let start = 0; start < codes.length; start += ANSWERS) {
    if (start > 0) await turn();
    const end = Math.min(codes.length, start + ANSWERS);
    for (let at = start; at < end; at++) all[at] = answerOf(codes[at]!);
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

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new AbortedError("batchVerify", signal.reason);
}

/** Where nobody asked to be told: a failing device must not go unnoticed. */
function warn(error: ZapError): void {
  process.emitWarning(error.message, { type: "ZapWarning", code: error.code });
}
