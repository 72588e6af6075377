/** The lengths of Ed25519, for items that are copied one by one: what is malformed never gets as far as the device. */
import { MOST_MESSAGE_BYTES, type Lengths } from "../schemes/items.ts";

export const ed25519Lengths: Lengths = {
  publicKey: (length) => length === 32,
  message: (length) => length <= MOST_MESSAGE_BYTES,
  signature: (length) => length === 64,
};
