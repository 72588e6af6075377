/** What the parts of one wire over a native node share: limits, counters, events, the node, and what goes out. */
import { UndeliveredError, type ZapError } from "../../errors/index.ts";
import type { EventQueue } from "../common/events.ts";
import type { CommonOptions } from "../common/options.ts";
import type { WireEvent } from "../contract.ts";
import type { Limits } from "../settings.ts";
import type { NativeEngine } from "./engine.ts";
import type { NodeMemory } from "./memory.ts";
import { Outbox } from "./outbox.ts";

export class NativeHub<E extends NativeEngine = NativeEngine, O extends CommonOptions = CommonOptions> {
  readonly nodeId: string;
  readonly limits: Limits;
  readonly options: O;
  /** Message versions to take; undefined for the one of this library. */
  readonly versions: readonly number[] | undefined;
  readonly engine: E;
  readonly memory: NodeMemory;
  readonly outbox: Outbox;
  undelivered = 0;
  closing = false;
  private readonly events: EventQueue;

  constructor(options: O, engine: E, memory: NodeMemory, events: EventQueue) {
    this.options = options;
    this.nodeId = options.nodeId;
    this.limits = options.limits;
    this.versions = options.versions;
    this.engine = engine;
    this.memory = memory;
    this.events = events;
    this.outbox = new Outbox(engine, memory, options.limits);
  }

  emit(event: WireEvent): void {
    this.events.emit(event);
  }

  fault(peer: string | null, error: ZapError): void {
    this.emit({ type: "error", peer, error });
  }

  reportUndelivered(peer: string, messages: number, cause: ZapError | null): void {
    if (messages <= 0) return;
    this.undelivered += messages;
    const what = messages === 1 ? "1 message was" : `${messages} messages were`;
    const why = cause === null ? "" : `: ${cause.message}`;
    const text = `${what} handed over for peer ${peer} and not delivered${why}`;
    this.fault(peer, new UndeliveredError(text, messages, cause === null ? undefined : { cause }));
  }
}
