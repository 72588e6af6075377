/**
 * Receiving into slabs: the bytes of a connection go from the kernel into memory that the GPU reads, with no copy in between.
 *
 * What lives here: the slab that connections read into in turn (`stream.ts`), how messages hold it (`share.ts`), where bytes come from
 * (`source.ts`: a native socket, or what Bun has read), the reader that cuts messages (`reader.ts`), and what drives it
 * (`poller.ts`, `intake.ts`). May import: memory, message, ffi, errors, and what a connection is made of beside it.
 * Start at `reader.ts`.
 */
export { SlabIntake, type IntakeOwner } from "./intake.ts";
export { SlabMemory, STREAM_BYTES } from "./memory.ts";
export { Poller } from "./poller.ts";
