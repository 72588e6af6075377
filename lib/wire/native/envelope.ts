/** One received message: a range of the region, which goes back to the node when it is released. */
import { ClosedError } from "../../errors/index.ts";
import type { Buffer } from "../../memory/index.ts";
import type { Lease } from "../common/lease.ts";
import { MessageBuffer, type MessageHome } from "../common/message-buffer.ts";
import type { Envelope } from "../contract.ts";
import type { NodeMemory } from "./memory.ts";

/** Whom the memory of a message goes back to. */
export interface EnvelopeHome {
  readonly memory: NodeMemory;
  giveBack(token: number): void;
}

export class NativeEnvelope implements Envelope, MessageHome {
  private readonly home: EnvelopeHome;
  private readonly lease: Lease;
  /** In the memory's view. */
  private readonly offset: number;
  private readonly length: number;
  private readonly token: number;
  private view: Uint8Array | null = null;
  private managed: MessageBuffer | null = null;
  private released = false;
  private spoilt = false;

  constructor(home: EnvelopeHome, lease: Lease, offset: number, length: number, token: number) {
    this.home = home;
    this.lease = lease;
    this.offset = offset;
    this.length = length;
    this.token = token;
    lease.count.held++;
  }

  get peer(): string {
    return this.lease.count.peerId;
  }

  get strict(): boolean {
    return this.home.memory.debug;
  }

  /** Made on first use: many consumers look at who sent it alone. */
  get message(): Uint8Array {
    if (this.released) throw new ClosedError("envelope.message: the envelope was released");
    // In debug mode the buffer has a say in it, every time: its owner may be another now.
    if (this.strict) return this.buffer!.bytes;
    if (this.view !== null && this.view.length > 0) return this.view;
    const { buffer } = this.home.memory.look();
    return (this.view = new Uint8Array(buffer, this.offset, this.length));
  }

  get buffer(): Buffer | null {
    if (this.managed !== null || this.released) return this.managed;
    const { offset, length } = this;
    this.managed = new MessageBuffer(this.home.memory.place, offset, offset + length, this, () =>
      this.finish(),
    );
    return this.managed;
  }

  release(): void {
    if (this.released) return;
    // The buffer ends the envelope, unless it may not be released now.
    if (this.managed !== null) return this.managed.release();
    this.finish();
    this.letGo();
  }

  private finish(): void {
    this.released = true;
    this.lease.count.held--;
  }

  // ---- what the buffer asks

  letGo(): void {
    // Memory that somebody may still write to is never the node's again.
    if (!this.spoilt) this.home.giveBack(this.token);
  }

  spoil(_error: Error): void {
    this.spoilt = true;
  }

  revive(): Uint8Array {
    return this.home.memory.look();
  }
}
