/** A native node seen from the event loop: its rings, its region, how it wakes us, and its end. What else it can be asked is each wire's. */
import { closeSync } from "node:fs";
import type { Socket } from "bun";
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { AbortedError, ShimError } from "../../errors/index.ts";
import { RingConsumer, RingProducer } from "./rings.ts";

/** Between two questions whether the node is open, or closed. */
const POLL_MILLIS = 2;
const NAME_BYTES = 64;

/** Makes `onWake` be called when `fd` can be read; that ends with `terminate`, which closes it. */
export type Waking = (fd: number, onWake: () => void) => Promise<{ terminate(): void }>;

/** Where things lie in the region of a node; offsets count from `address`. */
export interface RegionInfo {
  readonly address: number;
  readonly bytes: number;
  readonly handoffOffset: number;
  readonly returnsOffset: number;
  readonly sendsOffset: number;
  readonly donesOffset: number;
  readonly eventsOffset: number;
  /** From here to the end, messages may lie. */
  readonly memoryOffset: number;
  readonly poolOffset: number;
  readonly poolBytes: number;
  /** Its handle. */
  readonly region: number;
  readonly wakeFd: number;
}

/** What every native node can be asked. */
export interface NodeVerbs {
  readonly call: {
    opened(handle: number, node: Uint8Array): number;
    close(handle: number): number;
    closed(handle: number): number;
    region_free(region: number): number;
    name(list: number, index: number, text: Uint8Array, capacity: number): number;
  };
  /** What `opened` and `closed` answer while it goes on. */
  readonly again: number;
  /** Returns a status of 0 or above; throws `ShimError` for a negative one. `what` fits before "failed". */
  check(status: number, what: string): number;
}

/** What a node is to those who only pass messages. */
export interface NativeEngine {
  /** The wire's name, for people. */
  readonly name: string;
  readonly info: RegionInfo;
  readonly handoff: RingConsumer;
  readonly returns: RingProducer;
  readonly sends: RingProducer;
  readonly dones: RingConsumer;
  readonly events: RingConsumer;
  /** The event ring's entries as bytes. */
  readonly eventBytes: Uint8Array;
  /** Numbers for messages that are out: below this. */
  readonly messages: number;
  /** Nobody may look at the region any more. */
  freeRegion(): void;
}

export interface Shape {
  readonly name: string;
  /** The shim, for errors. */
  readonly library: string;
  readonly eventBytes: number;
  readonly messages: number;
}

export class NativeNode<V extends NodeVerbs, I extends RegionInfo> implements NativeEngine {
  readonly name: string;
  readonly info: I;
  readonly messages: number;
  readonly handoff: RingConsumer;
  readonly returns: RingProducer;
  readonly sends: RingProducer;
  readonly dones: RingConsumer;
  readonly events: RingConsumer;
  readonly eventBytes: Uint8Array;
  /** Called when something has come into a ring that was armed. */
  onWake: () => void = () => {};
  protected readonly verbs: V;
  protected readonly handle: number;
  protected closed = false;
  private waking: { terminate(): void } | null = null;
  /** The rings alone, which no user ever sees. */
  private readonly ringMemory: ArrayBuffer;

  protected constructor(verbs: V, handle: number, info: I, { name, library, eventBytes, messages }: Shape) {
    this.verbs = verbs;
    this.handle = handle;
    this.info = info;
    this.name = name;
    this.messages = messages;
    const memory = toArrayBuffer(info.address as Pointer, 0, info.memoryOffset);
    this.ringMemory = memory;
    this.handoff = new RingConsumer(memory, info.handoffOffset, undefined, library);
    this.returns = new RingProducer(memory, info.returnsOffset, undefined, library);
    this.sends = new RingProducer(memory, info.sendsOffset, undefined, library);
    this.dones = new RingConsumer(memory, info.donesOffset, undefined, library);
    this.events = new RingConsumer(memory, info.eventsOffset, eventBytes, library);
    const { words } = this.events;
    this.eventBytes = new Uint8Array(memory, words.byteOffset, words.byteLength);
  }

  private readonly onWoken = (): void => {
    if (!this.closed) this.onWake();
  };

  /** Begins to be woken. */
  async wakeBy(waking: Waking): Promise<void> {
    this.waking = await waking(this.info.wakeFd, this.onWoken);
  }

  stopWaking(): void {
    if (this.waking === null && this.info.wakeFd >= 0) closeSync(this.info.wakeFd);
    this.waking?.terminate();
  }

  protected namesOf(list: number): string[] {
    const names: string[] = [];
    for (;;) {
      const name = this.nameOf(list, names.length);
      if (name === null) return names;
      names.push(name);
    }
  }

  protected nameOf(list: number, index: number): string | null {
    const text = new Uint8Array(NAME_BYTES);
    const bytes = this.verbs.call.name(list, index, text, text.length);
    return bytes <= 0 ? null : new TextDecoder().decode(text.subarray(0, Math.min(bytes, text.length - 1)));
  }

  /** Ends flows and threads; the rings are dead from the call on. The region stays until `freeRegion`. */
  async close(): Promise<void> {
    this.closed = true;
    // What still holds the node, such as the socket's handlers, must not hold all of the wire with it.
    this.onWake = () => {};
    this.waking?.terminate();
    this.waking = null;
    await endNode(this.verbs, this.handle, this.name);
  }

  freeRegion(): void {
    if (this.ringMemory.byteLength > 0) this.ringMemory.transfer(0);
    this.verbs.check(this.verbs.call.region_free(this.info.region), "unmapping the region");
  }
}

/** Waits until a node that was begun is open, and fills `node`. Rejects with `ShimError`, `AbortedError`; then nothing stays open. */
export async function awaitOpened(
  verbs: NodeVerbs,
  handle: number,
  node: Uint8Array,
  what: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (;;) {
    const status = verbs.call.opened(handle, node);
    if (status !== verbs.again) return void verbs.check(status, `opening ${what}`);
    if (signal?.aborted) {
      await endNode(verbs, handle, what);
      throw new AbortedError("open", signal.reason);
    }
    await Bun.sleep(POLL_MILLIS);
  }
}

/** Puts a node that is open to use: made, woken, and what `then` adds. Where that rejects, the node is closed and its region gone. */
export async function useNode<N extends NativeNode<NodeVerbs, RegionInfo>>(
  verbs: NodeVerbs,
  handle: number,
  info: RegionInfo,
  waking: Waking,
  make: () => N,
  then: (node: N) => void = () => {},
): Promise<N> {
  let node: N | null = null;
  try {
    node = make();
    await node.wakeBy(waking);
    then(node);
    return node;
  } catch (error) {
    if (node !== null) node.stopWaking();
    else if (info.wakeFd >= 0) closeSync(info.wakeFd);
    const kept: unknown = await endNode(verbs, handle, "the node").then(
      () => null,
      (cause: unknown) => cause,
    );
    // A device may still write to its memory, which has to stay then, whosever it is; else what went wrong first is what counts.
    if (kept instanceof ShimError)
      throw new ShimError(kept.library, "ZAP_E_TIMEOUT", kept.message, { cause: error });
    verbs.call.region_free(info.region);
    throw error;
  }
}

async function endNode(verbs: NodeVerbs, handle: number, what: string): Promise<void> {
  verbs.check(verbs.call.close(handle), `closing ${what}`);
  for (;;) {
    const status = verbs.call.closed(handle);
    if (status !== verbs.again) return void verbs.check(status, `closing ${what}`);
    await Bun.sleep(POLL_MILLIS);
  }
}

export const wakeByHandle: Waking = async (fd, onWake) => {
  const options = { fd, socket: { data: onWake } } as unknown as Bun.TCPSocketConnectOptions;
  const socket: Socket = await Bun.connect(options);
  // It is the peers' caretaker that keeps a process alive.
  socket.unref();
  return socket;
};
