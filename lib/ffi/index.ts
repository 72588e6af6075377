/**
 * ffi: native libraries. Where they lie, whether they can be loaded, and our own ones loaded and checked.
 *
 * What lives here: the naming of platforms (`platform.ts`), the search for libraries on disk (`shim.ts` for our own, `library.ts`
 * for those of vendors, `embedded.ts` for what a compiled executable carries), the look at their headers (`image.ts`, `elf.ts`,
 * `macho.ts`, over the bytes of `image-bytes.ts`), opening a shim (`open.ts`), its answers (`status.ts`), its functions (`symbols/`) and
 * those of them that the wires need (`poller-verbs.ts`, `dpdk-verbs.ts`, `gpudirect-verbs.ts`). Vendors' libraries are never loaded here: that is for the shims.
 * May import: errors.
 * Start at `open.ts`.
 */
export { platformHere, platformLabel } from "./platform.ts";
export type { Platform } from "./platform.ts";
export { imageFault } from "./image.ts";
export { libDirFault, locateShim } from "./shim.ts";
export type { ShimLocation } from "./shim.ts";
export { findShim, openShim, tryShim } from "./open.ts";
export type { Shim, ShimFault } from "./open.ts";
export { pollerVerbs } from "./poller-verbs.ts";
export type { PollerVerbs } from "./poller-verbs.ts";
export { dpdkVerbs } from "./dpdk-verbs.ts";
export type { DpdkVerbs } from "./dpdk-verbs.ts";
export { gpudirectVerbs } from "./gpudirect-verbs.ts";
export type { GpudirectVerbs } from "./gpudirect-verbs.ts";
export { locateLibrary } from "./library.ts";
export type { LibrarySearch } from "./library.ts";
export { cText, readPrerequisites, readText, statusName } from "./status.ts";
export type { PrerequisiteRow } from "./status.ts";
export * from "./symbols/index.ts";
