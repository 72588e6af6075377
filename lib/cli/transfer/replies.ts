/** Receipts on their way out. A receipt must not make everybody else wait for the peer that it is for: nobody waits for it. */
import type { Transport } from "../../index.ts";
import { encodeReceipt, type FileReceipt } from "./messages.ts";

/** Receipts that may wait for one peer to read; a peer that lets more gather gets no further ones. */
const WAITING_MAX = 64;
const NO_HASH = new Uint8Array(32);

export class Replies {
  private readonly transport: Transport;
  private readonly waiting = new Map<string, number>();

  constructor(transport: Transport) {
    this.transport = transport;
  }

  /** What is left out of the receipt is zero or empty. */
  send(peer: string, id: bigint, receipt: Pick<FileReceipt, "status"> & Partial<FileReceipt>): void {
    const waiting = this.waiting.get(peer) ?? 0;
    if (waiting >= WAITING_MAX) return;
    this.waiting.set(peer, waiting + 1);
    const message = encodeReceipt({ size: 0, hash: NO_HASH, reason: "", ...receipt, id });
    const sent = (): void => {
      const left = (this.waiting.get(peer) ?? 1) - 1;
      if (left > 0) this.waiting.set(peer, left);
      else this.waiting.delete(peer);
    };
    // A peer that is gone needs no receipt; that it is gone is noticed elsewhere.
    this.transport.send(peer, message).then(sent, sent);
  }
}
