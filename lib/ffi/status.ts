/** What a shim answers: status codes and texts, and the rows of a probe. */
import { PREREQUISITE, SHIM_STATUS, type StatusName } from "./symbols/shim.ts";

const NAMES = new Map(
  Object.entries(SHIM_STATUS).map(([name, status]) => [status as number, name as StatusName]),
);

/** `ZAP_E_MEMORY` for -3; a code that this version does not know is shown as it is. */
export function statusName(status: number): string {
  return NAMES.get(status) ?? `status ${status}`;
}

/** A row of a probe, as the transports' prerequisites have it. */
export interface PrerequisiteRow {
  readonly name: string;
  readonly met: boolean;
  readonly seen: string;
  readonly fix: string;
}

/** The first `count` rows of `memory`, which holds an array of `zap_prerequisite`. */
export function readPrerequisites(memory: Uint8Array, count: number): PrerequisiteRow[] {
  const { at, texts, bytes } = PREREQUISITE;
  const view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  return Array.from({ length: count }, (_, row) => {
    const start = row * bytes;
    return {
      name: readText(memory, start + at.name, texts.name),
      met: view.getInt32(start + at.met, true) !== 0,
      seen: readText(memory, start + at.seen, texts.seen),
      fix: readText(memory, start + at.fix, texts.fix),
    };
  });
}

/** UTF-8 that ends in a zero byte, or fills its `bytes`. What is left of a last character that was cut in two does not appear. */
export function readText(memory: Uint8Array, at: number, bytes: number): string {
  const field = memory.subarray(at, at + bytes);
  const end = field.indexOf(0);
  const text = new TextDecoder().decode(end === -1 ? field : field.subarray(0, end));
  return text.replace(/\ufffd+$/, "");
}

/** A text as C wants it: UTF-8 that ends in a zero byte. */
export function cText(text: string): Uint8Array {
  return new TextEncoder().encode(`${text}\0`);
}
