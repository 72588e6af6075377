/** The native node, seen from the event loop: opening it, and what it can be asked beside what every native node can. */
import { LimitError, ShimError } from "../../errors/index.ts";
import {
  GPUDIRECT_EVENT_BYTES,
  GPUDIRECT_MESSAGES,
  GPUDIRECT_NAMES,
  GPUDIRECT_NODE,
  GPUDIRECT_OFFER,
  type GpudirectVerbs,
} from "../../ffi/index.ts";
import { awaitOpened, NativeNode, useNode, wakeByHandle, type Waking } from "../native/engine.ts";
import type { VerbsOptions } from "./options.ts";
import { packSettings, readNode, type HostMemory, type NodeInfo, type OwnMemory } from "./structures.ts";

const SHAPE = {
  name: "gpudirect",
  library: "libzap_gpudirect",
  eventBytes: GPUDIRECT_EVENT_BYTES,
  messages: GPUDIRECT_MESSAGES,
} as const;

export interface VerbsHost {
  /** Absolute path of libibverbs. */
  readonly runtime: string;
  /** Page-locked memory for the region; null where the node maps its own. */
  readonly memory: HostMemory | null;
  /** A GPU's own memory for received messages; null or not given where they lie in the region. */
  readonly own?: OwnMemory | null;
}

export class VerbsEngine extends NativeNode<GpudirectVerbs, NodeInfo> {
  /** Rejects with `ShimError` where the device cannot be had, `AbortedError`; then nothing stays open. */
  static async open(
    verbs: GpudirectVerbs,
    options: VerbsOptions,
    { runtime, memory: host, own = null }: VerbsHost,
    waking: Waking = wakeByHandle,
    signal?: AbortSignal,
  ): Promise<VerbsEngine> {
    const what = options.environment.device || "an RDMA device";
    const settings = packSettings(options, runtime, host, own);
    const handle = verbs.check(verbs.call.open(settings), `opening ${what}`);
    const node = new Uint8Array(GPUDIRECT_NODE.bytes);
    await awaitOpened(verbs, handle, node, what, signal);
    const info = readNode(node);
    const make = (): VerbsEngine => new VerbsEngine(verbs, handle, info, SHAPE);
    return useNode(verbs, handle, info, waking, make, (engine) => {
      engine.sends.onArmed = engine.kick;
      engine.returns.onArmed = engine.kick;
    });
  }

  private readonly kick = (): void => {
    if (!this.closed) this.verbs.call.kick(this.handle);
  };

  /** Makes a queue pair: its number, and what the far end has to be told. Throws `LimitError` where there are too many, `ShimError`. */
  begin(): { readonly flow: number; readonly offer: Uint8Array } {
    const offer = new Uint8Array(GPUDIRECT_OFFER.bytes);
    const status = this.verbs.call.flow_begin(this.handle, offer);
    try {
      return { flow: this.verbs.check(status, "making a queue pair"), offer };
    } catch (cause) {
      if (status !== this.verbs.limit || !(cause instanceof ShimError)) throw cause;
      throw new LimitError(cause.message);
    }
  }

  /** Takes what the far end offered. Throws `ShimError`; then the flow is gone. */
  accept(flow: number, offer: Uint8Array): void {
    this.verbs.check(this.verbs.call.flow_accept(this.handle, flow, offer), "connecting a queue pair");
  }

  closeFlow(flow: number): void {
    this.verbs.call.flow_close(this.handle, flow);
  }

  abortFlow(flow: number): void {
    if (!this.closed) this.verbs.call.flow_abort(this.handle, flow);
  }

  readStats(memory: Uint8Array): void {
    this.verbs.check(this.verbs.call.stats_read(this.handle, memory), "reading what is counted");
  }

  /** The names of a list, in order; numbers count from 0. */
  names(list: keyof typeof GPUDIRECT_NAMES): string[] {
    return this.namesOf(GPUDIRECT_NAMES[list]);
  }

  nameIn(list: keyof typeof GPUDIRECT_NAMES, index: number): string {
    return this.nameOf(GPUDIRECT_NAMES[list], index) ?? `${list} ${index}`;
  }
}
