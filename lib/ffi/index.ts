/**
 * ffi: where native libraries lie. Opening them and checking their ABI belongs here too, once there is one to open.
 *
 * What lives here: the naming of shims and platforms, and the search for libraries on disk. It reads folders and file
 * headers; it loads nothing and starts nothing. May import: errors.
 * Start at `shim.ts` for our own libraries, at `library.ts` for those of vendors.
 */
export { platformHere, platformLabel } from "./platform.ts";
export type { Platform } from "./platform.ts";
export { locateShim } from "./shim.ts";
export type { ShimLocation, ShimName } from "./shim.ts";
export { isLoadable, locateLibrary } from "./library.ts";
export type { LibrarySearch } from "./library.ts";
