/**
 * What two nodes say to each other on their link, a ZAP message each: its root object has a `u32` kind, a `u32` version, and in an offer
 * what the native side wants to be told of a queue pair, as it is. Each side makes one offer as soon as the link is there, and says that it is
 * ready when it has brought up its queue pair to the other's; a node that has heard that, or that a message has come to, may send.
 */
import { GPUDIRECT_OFFER } from "../../ffi/index.ts";
import { HEADER_BYTES, MAGIC } from "../../message/index.ts";

const KIND = { offer: 1, ready: 2 } as const;
const VERSION = 1;
const WORDS_BYTES = 8;

export type Said = { readonly kind: "offer"; readonly offer: Uint8Array } | { readonly kind: "ready" };

function say(kind: number, body: Uint8Array): Uint8Array {
  const message = new Uint8Array(HEADER_BYTES + WORDS_BYTES + body.length);
  const view = new DataView(message.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint16(4, 1, true);
  view.setUint32(8, HEADER_BYTES, true);
  view.setUint32(12, message.length, true);
  view.setUint32(HEADER_BYTES, kind, true);
  view.setUint32(HEADER_BYTES + 4, VERSION, true);
  message.set(body, HEADER_BYTES + WORDS_BYTES);
  return message;
}

/** `offer`: 80 bytes. */
export function sayOffer(offer: Uint8Array): Uint8Array {
  return say(KIND.offer, offer);
}

export function sayReady(): Uint8Array {
  return say(KIND.ready, new Uint8Array(0));
}

/** What was said, or in words why that is nothing. The header was checked before. */
export function readSaid(message: Uint8Array): Said | string {
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const bytes = message.length - HEADER_BYTES - WORDS_BYTES;
  if (bytes < 0 || view.getUint32(8, true) !== HEADER_BYTES)
    return `${message.length} bytes on a link that say nothing`;
  const kind = view.getUint32(HEADER_BYTES, true);
  const version = view.getUint32(HEADER_BYTES + 4, true);
  if (version !== VERSION) return `it speaks version ${version} of what is said on a link, and we ${VERSION}`;
  if (kind === KIND.ready) return bytes === 0 ? { kind: "ready" } : `${bytes} bytes behind "ready"`;
  if (kind !== KIND.offer) return `kind ${kind} is not said on a link`;
  if (bytes !== GPUDIRECT_OFFER.bytes)
    return `an offer has ${GPUDIRECT_OFFER.bytes} bytes, and this one ${bytes}`;
  return { kind: "offer", offer: message.slice(HEADER_BYTES + WORDS_BYTES) };
}
