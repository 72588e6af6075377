/** One received message in a GPU's own memory, which goes back to the node when it is released. */
import { ClosedError } from "../../errors/index.ts";
import type { Buffer } from "../../memory/index.ts";
import type { Lease } from "../common/lease.ts";
import type { Envelope } from "../contract.ts";
import { DeviceBuffer, type DeviceBufferHome } from "./device-buffer.ts";
import type { EnvelopeHome } from "./envelope.ts";
import type { NodeMemory, ReceivedOnDevice } from "./memory.ts";

export class DeviceEnvelope implements Envelope, DeviceBufferHome {
  private readonly home: EnvelopeHome;
  private readonly lease: Lease;
  private readonly received: ReceivedOnDevice;
  private readonly offset: number;
  private readonly length: number;
  private readonly token: number;
  private managed: DeviceBuffer | null = null;
  private released = false;

  /** `length` bytes from `offset` of the memory on. */
  constructor(
    home: EnvelopeHome,
    lease: Lease,
    received: ReceivedOnDevice,
    offset: number,
    length: number,
    token: number,
  ) {
    this.home = home;
    this.lease = lease;
    this.received = received;
    this.offset = offset;
    this.length = length;
    this.token = token;
    lease.count.held++;
  }

  get peer(): string {
    return this.lease.count.peerId;
  }

  get memory(): NodeMemory {
    return this.home.memory;
  }

  /** The copy on the host, made on first use: whoever leaves the message to the GPU pays for none. */
  get message(): Uint8Array {
    if (this.released) throw new ClosedError("envelope.message: the envelope was released");
    return this.buffer!.bytes;
  }

  get buffer(): Buffer | null {
    if (this.managed !== null || this.released) return this.managed;
    return (this.managed = new DeviceBuffer(this.received, this.offset, this.length, this));
  }

  release(): void {
    if (this.released) return;
    // The buffer ends the envelope, unless it may not be released now.
    if (this.managed !== null) return this.managed.release();
    this.ended();
    this.letGo(null);
  }

  // ---- what the buffer asks

  ended(): void {
    this.released = true;
    this.lease.count.held--;
  }

  letGo(fault: Error | null): void {
    // Memory that a kernel may still write to is never the node's again.
    if (fault === null) this.home.giveBack(this.token);
  }
}
