/** The native node, seen from the event loop: opening and closing it, its rings, and what it can be asked. */
import { closeSync } from "node:fs";
import type { Socket } from "bun";
import { toArrayBuffer, type Pointer } from "bun:ffi";
import { AbortedError } from "../../errors/index.ts";
import { DPDK_EVENT_BYTES, DPDK_NAMES, DPDK_NODE, type DpdkVerbs } from "../../ffi/index.ts";
import { environmentStarted } from "./environment.ts";
import { ipText } from "./ip.ts";
import type { DpdkOptions } from "./options.ts";
import { RingConsumer, RingProducer } from "./rings.ts";
import {
  packAllowed,
  packDial,
  packSettings,
  readNode,
  type DialRequest,
  type NodeInfo,
} from "./structures.ts";

/** Between two questions whether the node is open, or closed. */
const POLL_MILLIS = 2;
const NAME_BYTES = 64;

/** Makes `onWake` be called when `fd` can be read; that ends with `terminate`, which closes it. */
export type Waking = (fd: number, onWake: () => void) => Promise<{ terminate(): void }>;

export class Engine {
  readonly info: NodeInfo;
  readonly handoff: RingConsumer;
  readonly returns: RingProducer;
  readonly sends: RingProducer;
  readonly dones: RingConsumer;
  readonly events: RingConsumer;
  /** The event ring's entries as bytes. */
  readonly eventBytes: Uint8Array;
  /** Called when something has come into a ring that was armed. */
  onWake: () => void = () => {};
  private readonly verbs: DpdkVerbs;
  private readonly handle: number;
  private waking: { terminate(): void } | null = null;
  private closed = false;
  /** The rings alone, which no user ever sees. */
  private readonly ringMemory: ArrayBuffer;

  private constructor(verbs: DpdkVerbs, handle: number, info: NodeInfo) {
    this.verbs = verbs;
    this.handle = handle;
    this.info = info;
    this.ringMemory = toArrayBuffer(info.address as Pointer, 0, info.packetOffset);
    this.handoff = new RingConsumer(this.ringMemory, info.handoffOffset);
    this.returns = new RingProducer(this.ringMemory, info.returnsOffset);
    this.sends = new RingProducer(this.ringMemory, info.sendsOffset);
    this.dones = new RingConsumer(this.ringMemory, info.donesOffset);
    this.events = new RingConsumer(this.ringMemory, info.eventsOffset, DPDK_EVENT_BYTES);
    const { words } = this.events;
    this.eventBytes = new Uint8Array(this.ringMemory, words.byteOffset, words.byteLength);
  }

  /** Rejects with `ShimError` where the port cannot be had, `AbortedError`; then nothing stays open. */
  static async open(
    verbs: DpdkVerbs,
    options: DpdkOptions,
    waking: Waking = wakeByHandle,
    signal?: AbortSignal,
  ): Promise<Engine> {
    const { memory: allow, entries } = packAllowed(options);
    const begun = verbs.call.open(packSettings(options), entries === 0 ? null : allow, entries);
    const handle = verbs.check(begun, `opening ${options.device}`);
    const node = new Uint8Array(DPDK_NODE.bytes);
    for (;;) {
      const status = verbs.call.opened(handle, node);
      if (status !== verbs.again) {
        verbs.check(status, `opening ${options.device}`);
        environmentStarted();
        break;
      }
      if (signal?.aborted) {
        await end(verbs, handle);
        throw new AbortedError("open", signal.reason);
      }
      await Bun.sleep(POLL_MILLIS);
    }
    const info = readNode(node);
    let engine: Engine | null = null;
    try {
      engine = new Engine(verbs, handle, info);
      const { onWoken } = engine;
      engine.waking = await waking(info.wakeFd, onWoken);
      for (const { ip, mac } of options.environment.neighbours)
        verbs.check(verbs.call.neighbour(handle, ip, mac), `adding neighbour ${ipText(ip)}`);
      return engine;
    } catch (error) {
      if (engine?.waking == null && info.wakeFd >= 0) closeSync(info.wakeFd);
      engine?.waking?.terminate();
      // What went wrong first is what counts.
      await end(verbs, handle).catch(() => {});
      verbs.call.region_free(info.region);
      throw error;
    }
  }

  private readonly onWoken = (): void => {
    if (!this.closed) this.onWake();
  };

  /** False where there are too many. */
  dial(request: DialRequest): boolean {
    const status = this.verbs.call.dial_begin(this.handle, packDial(request));
    if (status === this.verbs.limit) return false;
    this.verbs.check(status, `dialling ${ipText(request.ip)}`);
    return true;
  }

  cancelDial(number: number): void {
    if (!this.closed) this.verbs.call.dial_cancel(this.handle, number);
  }

  closeFlow(flow: number): void {
    this.verbs.call.flow_close(this.handle, flow);
  }

  abortFlow(flow: number): void {
    this.verbs.call.flow_abort(this.handle, flow);
  }

  readStats(memory: Uint8Array): void {
    this.verbs.check(this.verbs.call.stats_read(this.handle, memory), "reading what is counted");
  }

  readQueue(queue: number, memory: Uint8Array): void {
    this.verbs.check(this.verbs.call.queue_read(this.handle, queue, memory), "reading what is counted");
  }

  /** The names of a list, in order; numbers count from 0. */
  names(list: keyof typeof DPDK_NAMES): string[] {
    const names: string[] = [];
    const text = new Uint8Array(NAME_BYTES);
    for (;;) {
      const bytes = this.verbs.call.name(DPDK_NAMES[list], names.length, text, text.length);
      if (bytes <= 0) return names;
      names.push(new TextDecoder().decode(text.subarray(0, Math.min(bytes, text.length - 1))));
    }
  }

  name(list: keyof typeof DPDK_NAMES, index: number): string {
    const text = new Uint8Array(NAME_BYTES);
    const bytes = this.verbs.call.name(DPDK_NAMES[list], index, text, text.length);
    return bytes <= 0
      ? `${list} ${index}`
      : new TextDecoder().decode(text.subarray(0, Math.min(bytes, text.length - 1)));
  }

  /** Ends flows and threads; the rings are dead from the call on. The region stays until `freeRegion`. */
  async close(): Promise<void> {
    this.closed = true;
    // What still holds the engine, such as the socket's handlers, must not hold all of the wire with it.
    this.onWake = () => {};
    this.waking?.terminate();
    this.waking = null;
    await end(this.verbs, this.handle);
  }

  /** Nobody may look at the region any more. */
  freeRegion(): void {
    if (this.ringMemory.byteLength > 0) this.ringMemory.transfer(0);
    this.verbs.check(this.verbs.call.region_free(this.info.region), "unmapping the region");
  }
}

async function end(verbs: DpdkVerbs, handle: number): Promise<void> {
  verbs.check(verbs.call.close(handle), "closing the port");
  for (;;) {
    const status = verbs.call.closed(handle);
    if (status !== verbs.again) return void verbs.check(status, "closing the port");
    await Bun.sleep(POLL_MILLIS);
  }
}

const wakeByHandle: Waking = async (fd, onWake) => {
  const options = { fd, socket: { data: onWake } } as unknown as Bun.TCPSocketConnectOptions;
  const socket: Socket = await Bun.connect(options);
  // It is the peers' caretaker that keeps a process alive.
  socket.unref();
  return socket;
};
