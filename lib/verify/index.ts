/**
 * Batch signature verification: one call for every scheme, one verdict per item, the same on every backend.
 *
 * What lives here: `dispatch.ts` (the calls), `options.ts` (what they take), `batch.ts`, `packing.ts` and `survey.ts` (batches in one piece of memory),
 * `views.ts` (bytes as callers give them), `held.ts` (memory that is taken away meanwhile), `rows.ts` (what lies in a batch), `turns.ts` (of the event loop), `registry.ts` (the backends and who gets a call), `contract.ts` (the words they share), `schemes/`
 * (each scheme on one thread), `pool/` (all cores), `backends/` (the CPU, devices). The rules of each scheme are in `docs/verify.md`.
 * May import: memory, ffi, settings, errors.
 * Start at `batchVerify` in `dispatch.ts`.
 */
export {
  batchVerify,
  batchVerifyBLS,
  batchVerifyEd25519,
  batchVerifyMLDSA,
  batchVerifySecp256k1,
  batchVerifySLHDSA,
  type Answer,
  type Batch,
} from "./dispatch.ts";
export { batchInPlace } from "./backends/gpu-place.ts";
export { pack, type PackOptions } from "./packing.ts";
export {
  type BlsOptions,
  type ContextOptions,
  type OptionsOf,
  type Secp256k1Options,
  type VerifyOptions,
} from "./options.ts";
export {
  checkVerifySettings,
  verifyBackends,
  wantedBackend,
  type BackendReport,
  type SchemeReport,
} from "./registry.ts";
export { packMessages } from "./schemes/bls-messages.ts";
export {
  BLS_AUG,
  BLS_NUL,
  BLS_POP,
  REASONS,
  SCHEMES,
  type BackendName,
  type BlsForm,
  type Digest,
  type EcdsaEncoding,
  type Item,
  type MlDsaScheme,
  type PackedBatch,
  type Reason,
  type Scheme,
  type SlhDsaScheme,
  type Verdict,
} from "./contract.ts";
