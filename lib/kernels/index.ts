/**
 * Kernels: work that a device does on messages where they lie, each with a twin on the CPU that gives the same verdicts.
 *
 * What lives here: one file for each kernel. The device code itself is in `shim/kernels/`. May import: memory, message, errors.
 * Start at `check-headers.ts`. What a new one takes is in `docs/contributing.md`.
 */
export {
  checkHeaders,
  HEADER_VERDICTS,
  type CheckHeadersOptions,
  type HeaderCheck,
  type HeaderVerdict,
} from "./check-headers.ts";
