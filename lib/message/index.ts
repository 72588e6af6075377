/**
 * The ZAP message format, version 1: header check, zero-copy reader, builder.
 *
 * What lives here: `format.ts` (the numbers), `header.ts` (the check that wires run), `message.ts` and `reader.ts` (reading),
 * `builder.ts` and the `*-builder.ts` beside it (writing). May import: errors.
 * Start at `parse` in `message.ts` and `MessageBuilder` in `builder.ts`; the format for people is in `docs/message.md`.
 */
export {
  ADDRESS_BYTES,
  ALIGNMENT_BYTES,
  FLAG_COMPRESSED,
  FLAG_ENCRYPTED,
  FLAG_SIGNED,
  HASH_BYTES,
  HEADER_BYTES,
  MAGIC,
  MESSAGE_BYTES_MAX,
  POINTER_BYTES,
  SIGNATURE_BYTES,
  SLOT_BYTES,
  TEXT_BYTES_MAX,
  TYPE_SHIFT,
  VERSION,
} from "./format.ts";
export { HEADER_FAULTS, headerError, headerFault } from "./header.ts";
export type { HeaderFaultName } from "./header.ts";
export { parse } from "./message.ts";
export type { Message, ParseOptions } from "./message.ts";
export { NULL_LIST, NULL_OBJECT } from "./reader.ts";
export type { ListReader, ObjectReader } from "./reader.ts";
export { MessageBuilder } from "./builder.ts";
export type { BuilderOptions, FinishOptions } from "./builder.ts";
export type { ObjectBuilder } from "./object-builder.ts";
export type { ObjectList } from "./object-list.ts";
export type {
  ListBuilder,
  PlacedList,
  PointerListBuilder,
  ScalarListBuilder,
  TextListBuilder,
} from "./list-builder.ts";
export type { ObjectTarget } from "./draft.ts";
