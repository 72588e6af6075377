/** What `send` refuses on every wire, and with which words. */
import { FrameTooLargeError, MessageError, UnknownPeerError, type ZapError } from "../../errors/index.ts";
import { headerError, headerFault } from "../../message/index.ts";
import type { Limits } from "../settings.ts";

/** Null for a ZAP message of a size and version that may be sent; else what to reject with. */
export function sendFault(
  message: Uint8Array,
  { limits, versions }: { readonly limits: Limits; readonly versions: readonly number[] | undefined },
): ZapError | null {
  if (!(message instanceof Uint8Array)) {
    return new MessageError("ERR_ZAP_MESSAGE_SHORT", "send: a message is a Uint8Array");
  }
  const fault = headerFault(message, 0, message.length, versions);
  if (fault !== 0) return headerError(fault, message, 0, message.length, versions);
  const { frameBytes } = limits;
  if (message.length <= frameBytes) return null;
  return new FrameTooLargeError(
    `send: a message of ${message.length} bytes; limits.frameBytes is ${frameBytes}`,
  );
}

export function unknownPeer(id: string): UnknownPeerError {
  const text = `no peer ${JSON.stringify(id)}: name its address in peers, connect(address), or let it dial in`;
  return new UnknownPeerError(text);
}

/** A message whose view was emptied or grew while its `send` waited. */
export function changedMessage(): MessageError {
  return new MessageError("ERR_ZAP_MESSAGE_SHORT", "send: the message changed its length while it waited");
}
