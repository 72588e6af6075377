/**
 * @luxfi/zap: one interface, `Transport`, and the best implementation of it that this host can run.
 *
 * Start at `pick()`.
 */
import packageJson from "../package.json" with { type: "json" };
import { pick } from "./transport/pick.ts";
import { registered } from "./transport/probe.ts";

/** The version of this package. */
export const VERSION: string = packageJson.version;

export * from "./errors/index.ts";
export * from "./message/index.ts";
export * from "./kernels/index.ts";
export type { Buffer, BufferAllocator, Owner } from "./memory/index.ts";
export * from "./transport/index.ts";
export {
  batchInPlace,
  batchVerify,
  batchVerifyBLS,
  batchVerifyEd25519,
  batchVerifyMLDSA,
  batchVerifySecp256k1,
  batchVerifySLHDSA,
  BLS_AUG,
  BLS_NUL,
  BLS_POP,
  pack,
  packMessages,
  REASONS,
  SCHEMES,
  verifyBackends,
  type Answer,
  type BackendName,
  type BackendReport,
  type Batch,
  type BlsForm,
  type BlsOptions,
  type ContextOptions,
  type Digest,
  type EcdsaEncoding,
  type Item,
  type MlDsaScheme,
  type OptionsOf,
  type PackedBatch,
  type PackOptions,
  type Reason,
  type Scheme,
  type SchemeReport,
  type Secp256k1Options,
  type SlhDsaScheme,
  type Verdict,
  type VerifyOptions,
} from "./verify/index.ts";
export {
  DEFAULT_LIMITS,
  type Limits,
  type Pem,
  type PortStats,
  type QueueStats,
  type TlsOptions,
} from "./wire/index.ts";

/** The names that the Go package has, for people who come from there. */
export { pick as Pick, registered as Registered };
