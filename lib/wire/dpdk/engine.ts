/** The native node, seen from the event loop: opening it, and what it can be asked beside what every native node can. */
import { DPDK_EVENT_BYTES, DPDK_MESSAGES, DPDK_NAMES, DPDK_NODE, type DpdkVerbs } from "../../ffi/index.ts";
import { awaitOpened, NativeNode, useNode, wakeByHandle, type Waking } from "../native/engine.ts";
import { environmentStarted } from "./environment.ts";
import { ipText } from "./ip.ts";
import type { DpdkOptions } from "./options.ts";
import {
  packAllowed,
  packDial,
  packSettings,
  readNode,
  type DialRequest,
  type NodeInfo,
} from "./structures.ts";

const SHAPE = {
  name: "dpdk",
  library: "libzap_dpdk",
  eventBytes: DPDK_EVENT_BYTES,
  messages: DPDK_MESSAGES,
} as const;

export class Engine extends NativeNode<DpdkVerbs, NodeInfo> {
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
    await awaitOpened(verbs, handle, node, options.device, signal);
    environmentStarted();
    const info = readNode(node);
    const make = (): Engine => new Engine(verbs, handle, info, SHAPE);
    return useNode(verbs, handle, info, waking, make, () => {
      for (const { ip, mac } of options.environment.neighbours)
        verbs.check(verbs.call.neighbour(handle, ip, mac), `adding neighbour ${ipText(ip)}`);
    });
  }

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
    return this.namesOf(DPDK_NAMES[list]);
  }

  nameIn(list: keyof typeof DPDK_NAMES, index: number): string {
    return this.nameOf(DPDK_NAMES[list], index) ?? `${list} ${index}`;
  }
}
