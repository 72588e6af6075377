/** The messages of an `aggregate` item: one after another, each behind its length as a little-endian `u32`. */
import { isUint8Array } from "node:util/types";
import { ConfigError } from "../../errors/index.ts";
import { checkBytes } from "../batch.ts";
import { isReleased } from "../views.ts";

const LENGTH_BYTES = 4;

/**
 * Several messages as the `message` of one `aggregate` item. Throws `ConfigError` for what is no list of bytes, `LimitError` where they do not fit
 * into a batch.
 */
export function packMessages(messages: readonly Uint8Array[]): Uint8Array {
  if (!Array.isArray(messages)) throw new ConfigError("packMessages takes a list of Uint8Arrays");
  let size = 0;
  for (const message of messages) {
    if (!isUint8Array(message) || isReleased(message))
      throw new ConfigError("packMessages takes Uint8Arrays whose memory was not released");
    size += LENGTH_BYTES + message.length;
  }
  checkBytes(size);
  const packed = new Uint8Array(size);
  const view = new DataView(packed.buffer);
  let at = 0;
  for (const message of messages) {
    view.setUint32(at, message.length, true);
    packed.set(message, at + LENGTH_BYTES);
    at += LENGTH_BYTES + message.length;
  }
  return packed;
}

/** The `count` messages in `packed`, as views; null where it does not hold exactly so many. */
export function readMessages(packed: Uint8Array, count: number): Uint8Array[] | null {
  const view = new DataView(packed.buffer, packed.byteOffset, packed.length);
  const messages: Uint8Array[] = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (at + LENGTH_BYTES > packed.length) return null;
    const start = at + LENGTH_BYTES;
    at = start + view.getUint32(at, true);
    if (at > packed.length) return null;
    messages.push(packed.subarray(start, at));
  }
  return at === packed.length ? messages : null;
}
