/**
 * The words that every part of `verify` shares: schemes, a batch as it lies in memory, verdicts, parameters, and what a scheme's verifier
 * and a backend are. No code but tables: `packing.ts` makes batches, `options.ts` makes parameters, `schemes/` verifies on one thread.
 */
import type { ZapError } from "../errors/index.ts";

/** The signature schemes, by the names that options, logs and `zap-info` use. */
export const SCHEMES = [
  "ed25519",
  "secp256k1",
  "bls12-381",
  "ml-dsa-44",
  "ml-dsa-65",
  "ml-dsa-87",
  "slh-dsa-sha2-128s",
  "slh-dsa-sha2-128f",
  "slh-dsa-sha2-192s",
  "slh-dsa-sha2-192f",
  "slh-dsa-sha2-256s",
  "slh-dsa-sha2-256f",
  "slh-dsa-shake-128s",
  "slh-dsa-shake-128f",
  "slh-dsa-shake-192s",
  "slh-dsa-shake-192f",
  "slh-dsa-shake-256s",
  "slh-dsa-shake-256f",
] as const;

export type Scheme = (typeof SCHEMES)[number];
export type MlDsaScheme = Extract<Scheme, `ml-dsa-${string}`>;
export type SlhDsaScheme = Extract<Scheme, `slh-dsa-${string}`>;

/** One signature to verify. The bytes are read, never written or kept; they must not change until the answer is there. */
export interface Item {
  readonly publicKey: Uint8Array;
  readonly message: Uint8Array;
  readonly signature: Uint8Array;
}

/** How many `u32` of a table belong to one item. */
export const TABLE_STRIDE = 6;

/**
 * A batch as one piece of memory, so that an envelope's bytes are verified where they lie. `table` has six `u32` per item, in the
 * machine's byte order: offset and length, in `bytes`, of the public key, of the message and of the signature. Parts may overlap and be
 * shared between items, in any order, at any alignment. An item with a part outside of `bytes` is malformed (`item`), and only that item.
 * `bytes` has less than 4 GiB. Memory that was released, or a view outside of its resizable buffer, makes the whole batch none.
 */
export interface PackedBatch {
  readonly bytes: Uint8Array;
  /** At least `6 * count` entries; more are passed over. */
  readonly table: Uint32Array;
  /** 0 to 1,048,576. */
  readonly count: number;
}

/**
 * Why a verdict is what it is; a code is an index into this list. All backends give the same code for the same item.
 *
 * - `signature`: well-formed, and not a signature of this message by this key
 * - `valid`
 * - `item`: a part is not a `Uint8Array`, cannot be read, was released before the call, or lies outside of the batch's bytes
 * - `public-key-length`, `message-length`, `signature-length`: a length that the scheme does not have
 * - `public-key`: right in length and no public key (not on the curve, not in the subgroup, at infinity, a wrong first byte)
 * - `signature-encoding`: right in length and not in the one encoding that is allowed (a scalar out of range, high S, bad DER, a point that
 *   is not in the subgroup)
 *
 * Lengths are looked at first, in the order public key, message, signature; then the signature's encoding; then the public key's.
 * Ed25519 knows no `public-key`: a key that does not decode makes an equation that does not hold, and is `signature`.
 */
export const REASONS = [
  "signature",
  "valid",
  "item",
  "public-key-length",
  "message-length",
  "signature-length",
  "public-key",
  "signature-encoding",
] as const;

export type Reason = (typeof REASONS)[number];

/** The codes by name: `CODE.valid` is 1, and it is the only one that means true. */
export const CODE = {
  signature: 0,
  valid: 1,
  item: 2,
  publicKeyLength: 3,
  messageLength: 4,
  signatureLength: 5,
  publicKey: 6,
  signatureEncoding: 7,
} as const;

/** The answer for one item where reasons were asked for. */
export interface Verdict {
  readonly valid: boolean;
  readonly reason: Reason;
}

/** What a secp256k1 message is: the 32-byte digest itself, or bytes to be hashed first. */
export type Digest = "given" | "sha256" | "keccak-256";
/** How a secp256k1 signature is written: 64 bytes r and s, or strict DER. */
export type EcdsaEncoding = "compact" | "der";
/**
 * What a BLS item is.
 * - `single`: one 48-byte key, one message, one signature
 * - `same-message`: one or more 48-byte keys, one after another, that all signed `message`; one aggregate signature
 * - `aggregate`: as many messages as keys; `message` holds them one after another, each behind its length as a little-endian `u32`
 */
export type BlsForm = "single" | "same-message" | "aggregate";

/** Ethereum's ciphersuite (proof of possession), the default. */
export const BLS_POP = "BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";
/** The basic scheme: the messages of an aggregate must differ. */
export const BLS_NUL = "BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_NUL_";
/** Message augmentation: what is signed is the key and then the message. */
export const BLS_AUG = "BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_AUG_";

/** What a scheme takes beside the batch, complete and checked (`options.ts`); plain data that a worker can be sent. */
export interface Params {
  /** ML-DSA and SLH-DSA: 0 to 255 bytes. */
  readonly context: Uint8Array;
  readonly digest: Digest;
  readonly encoding: EcdsaEncoding;
  readonly lowS: boolean;
  readonly ciphersuite: string;
  readonly form: BlsForm;
}

export const DEFAULT_PARAMS: Params = {
  context: new Uint8Array(0),
  digest: "given",
  encoding: "compact",
  lowS: true,
  ciphersuite: BLS_POP,
  form: "single",
};

/** One scheme on one thread. */
export interface SchemeVerifier {
  /** What verifies here, for `zap-info`. The verdicts are the same whichever it is. */
  readonly library?: string;
  /**
   * Verifies the items `from` to `to` (exclusive) of `batch` and writes `codes[i - from]`, an index into `REASONS`, for each. Synchronous.
   * Never throws for an item. `batch.bytes` may be over a `SharedArrayBuffer`. The range lies within the batch, `params` is complete.
   */
  verify(batch: PackedBatch, from: number, to: number, params: Params, codes: Uint8Array): void;
  /**
   * The same, where it is many times faster by a library that answers with promises: ML-DSA with a context. Null where `verify` is as fast
   * as it gets for these `params`. A caller that can wait should ask here first: `await (verifier.later?.(...) ?? verifier.verify(...))`.
   */
  later?(
    batch: PackedBatch,
    from: number,
    to: number,
    params: Params,
    codes: Uint8Array,
  ): Promise<void> | null;
}

/** A batch on its way through a backend. */
export interface Job {
  readonly scheme: Scheme;
  readonly batch: PackedBatch;
  readonly params: Params;
  /** One per item, to be filled with indices into `REASONS`. It counts once `run` has resolved. */
  readonly codes: Uint8Array;
  readonly signal: AbortSignal | undefined;
  /** True: the caller named this backend, and it must not hand the job to another, but reject where it cannot do it. */
  readonly forced?: boolean | undefined;
  /** Told when a device failed and the CPU verifies in its place; never more than once per job. */
  readonly onDeviceError?: ((error: ZapError) => void) | undefined;
}

export type BackendName = "cpu" | "cuda";

/** Something that verifies batches. */
export interface Backend {
  readonly name: BackendName;
  /** A device: batches of fewer items are left to the CPU unless it is forced. Null where that was not measured yet. */
  readonly leastItems?: number | null;
  /** True where it serves `scheme` on this host; otherwise one sentence for people: why not, and what would mend it. */
  serves(scheme: Scheme): true | string;
  /** Fills `job.codes`. Rejects with `AbortedError` where the signal fires, with another `ZapError` where it cannot finish; never resolves with a guess. */
  run(job: Job): Promise<void>;
}
