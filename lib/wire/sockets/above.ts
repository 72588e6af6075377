/**
 * What a wire that brings connections of its own up over this one sees of it. The hellos of its nodes say that they can do so; a connection
 * between two of them is a link: it carries what the two wires say to each other and no messages. All others are as ever.
 */
import type { ZapError } from "../../errors/index.ts";
import type { Connection } from "./connection.ts";
import { PREFIX_BYTES } from "./segment.ts";

/** None of these may end a connection from inside `up` or `down`. */
export interface Above {
  /** A connection with `peer` is in use: `link` with a node that can do what we do, else null. One at a time for each peer. */
  up(peer: string, link: Link | null): void;
  /** It is in use no more. */
  down(peer: string, link: Link | null, error: ZapError | null): void;
  /** What the far end said; the bytes are good during the call. */
  heard(link: Link, message: Uint8Array): void;
  /** A message of a node without a link has come into the receive queue. */
  queued(): void;
}

export class Link {
  readonly peer: string;
  private readonly connection: Connection;

  constructor(connection: Connection) {
    this.peer = connection.peerId;
    this.connection = connection;
  }

  get address(): string {
    return this.connection.address;
  }

  get dialled(): boolean {
    return !this.connection.inbound;
  }

  /** Says a ZAP message, as long as the link is in use. */
  say(message: Uint8Array): void {
    const { peer } = this.connection;
    if (peer === null || peer.connection !== this.connection) return;
    const frame = new Uint8Array(PREFIX_BYTES + message.length);
    new DataView(frame.buffer).setUint32(0, message.length, true);
    frame.set(message, PREFIX_BYTES);
    const ignore = (): void => {};
    peer.outbox.appendControl(frame, { done: ignore, failed: ignore });
    peer.flush();
  }

  /** Ends the connection at once. */
  fail(error: ZapError): void {
    this.connection.fail(error);
  }
}
