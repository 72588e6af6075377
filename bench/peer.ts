/** What a contender written in TypeScript implements. The child process does the counting and the timing. */

/** Takes one whole message. The bytes are only valid during the call. */
export type Take = (message: Uint8Array) => void;

/** The next message to send, or null when nothing more is to be sent. The bytes never change. */
export type Next = () => Uint8Array | null;

export interface Peer {
  /**
   * Listens on a free loopback port and resolves with the address that `connect` takes. Every message goes to `take`, whole and
   * in order; with `echo` it is sent back afterwards, at once.
   */
  listen(take: Take, echo: boolean): Promise<string>;
  connect(address: string): Promise<Link>;
}

export interface Link {
  /** Sends all that `next` gives, as fast as the receiver lets it, and resolves when the last one is handed over. */
  flood(next: Next): Promise<void>;
  /** Sends one message, waits for it to come back, gives it to `back`; until `next` gives null. */
  pingPong(next: Next, back: Take): Promise<void>;
}
