/** The native poller, seen from the event loop: which sockets can be read, and reading them. */
import { closeSync } from "node:fs";
import type { Socket } from "bun";
import type { PollerVerbs } from "../../../ffi/index.ts";
import type { Place } from "./place.ts";
import { READ_BROKEN, READ_NOTHING, type SlabSource } from "./source.ts";

const TAKE_MAX = 256;

/** Told once, after `arm`, that its socket can be read, has ended or is broken. */
export interface Readable {
  onReadable(): void;
}

export class Poller {
  private readonly verbs: PollerVerbs;
  private readonly handle: number;
  private readonly listeners = new Map<number, Readable>();
  private readonly ready = new Int32Array(TAKE_MAX);
  private wake: Socket | null = null;
  private closed = false;

  private constructor(verbs: PollerVerbs, handle: number) {
    this.verbs = verbs;
    this.handle = handle;
  }

  /** Starts the native thread. Rejects with the shim's error. */
  static async open(verbs: PollerVerbs): Promise<Poller> {
    const wakeFd = new Int32Array(1);
    const poller = new Poller(verbs, verbs.check(verbs.open(wakeFd), "open a poller"));
    const options = {
      fd: wakeFd[0]!,
      socket: { data: () => poller.take() },
    } as unknown as Bun.TCPSocketConnectOptions;
    try {
      poller.wake = await Bun.connect(options);
    } catch (error) {
      poller.close();
      closeSync(wakeFd[0]!);
      throw error;
    }
    // It is the connections that keep a process alive.
    poller.wake.unref();
    return poller;
  }

  /** A source over the socket `fd`, of which the poller keeps a duplicate. */
  add(fd: number, listener: Readable): NativeSource {
    const slot = this.verbs.check(this.verbs.add(this.handle, fd), "watch a socket");
    this.listeners.set(slot, listener);
    return new NativeSource(this, this.verbs, this.handle, slot);
  }

  remove(slot: number): void {
    if (this.listeners.delete(slot) && !this.closed) this.verbs.remove(this.handle, slot);
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.listeners.clear();
    this.verbs.close(this.handle);
    this.wake?.terminate();
  }

  private take(): void {
    if (this.closed) return;
    const count = this.verbs.take(this.handle, this.ready, TAKE_MAX);
    // Only a take that empties the list is followed by a wake-up. In between, others have their turn.
    if (count === TAKE_MAX) setImmediate(() => this.take());
    // A listener may remove any slot: what is left of the batch is then nobody's.
    for (const slot of this.ready.slice(0, Math.max(0, count))) this.listeners.get(slot)?.onReadable();
  }
}

/** Reads a socket straight into slabs. */
export class NativeSource implements SlabSource {
  /** Why `read` answered READ_BROKEN. */
  fault: Error | null = null;
  readBytes = 0;
  private readonly poller: Poller;
  private readonly verbs: PollerVerbs;
  private readonly handle: number;
  private readonly slot: number;
  /** The last read got less than it asked for: until it is armed again there is nothing. */
  private drained = false;

  constructor(poller: Poller, verbs: PollerVerbs, handle: number, slot: number) {
    this.poller = poller;
    this.verbs = verbs;
    this.handle = handle;
    this.slot = slot;
  }

  /** Looks again, even if there was nothing before. */
  begin(): void {
    this.drained = false;
  }

  arm(): void {
    this.verbs.check(this.verbs.arm(this.handle, this.slot), "watch a socket");
  }

  close(): void {
    this.poller.remove(this.slot);
  }

  read(
    first: Place,
    firstAt: number,
    firstBytes: number,
    second: Place | null,
    secondAt: number,
    secondBytes: number,
  ): number {
    if (this.drained) return READ_NOTHING;
    // Native code writes there: a slip of ours must not become somebody else's memory.
    if (firstAt + firstBytes > first.size || (second !== null && secondAt + secondBytes > second.size))
      throw new RangeError("a read beyond the slab");
    const address = first.address + firstAt;
    const read =
      second === null
        ? this.verbs.recv(this.handle, this.slot, address, firstBytes, 0, 0)
        : this.verbs.recv(
            this.handle,
            this.slot,
            address,
            firstBytes,
            second.address + secondAt,
            secondBytes,
          );
    if (read >= 0) {
      this.readBytes += read;
      this.drained = read > 0 && read < firstBytes + secondBytes;
      return read;
    }
    if (read === this.verbs.again) return READ_NOTHING;
    this.fault = this.broken(read);
    return READ_BROKEN;
  }

  private broken(status: number): Error {
    try {
      this.verbs.check(status, "recv");
    } catch (error) {
      if (error instanceof Error) return error;
    }
    return new Error(`recv: status ${status}`);
  }
}
