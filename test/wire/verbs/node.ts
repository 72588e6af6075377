/** Nodes of the verbs wire over doubles, and over real sockets on loopback. */
import {
  gpudirectEnvironment,
  resolveVerbsOptions,
  SocketsWire,
  VerbsEngine,
  VerbsWire,
} from "../../../lib/wire/index.ts";
import type { Envelope, Limits, WireEvent, WireOptions } from "../../../lib/wire/index.ts";
import { numberOf } from "../../support/messages.ts";
import { within } from "../../support/wait.ts";
import { areaKind } from "../native-ring.ts";
import { EngineDouble, type DoubleOptions } from "./engine-double.ts";

type Options = Omit<WireOptions, "limits" | "onEvent"> & { readonly limits?: Partial<Limits> };

const LIMITS: Partial<Limits> = {
  frameBytes: 2 ** 20,
  reconnectMinMillis: 10,
  reconnectMaxMillis: 40,
  closeMillis: 2_000,
};

abstract class Noted {
  readonly events: WireEvent[] = [];
  readonly onEvent = (event: WireEvent): void => void this.events.push(event);

  kinds(): string[] {
    return this.events.map((event) => (event.type === "error" ? event.error.code : event.type));
  }

  /** Texts of the errors that were reported. */
  errors(): string[] {
    return this.events.flatMap((event) => (event.type === "error" ? [event.error.message] : []));
  }
}

export class VerbsNode extends Noted implements AsyncDisposable {
  readonly double: EngineDouble;
  wire!: VerbsWire;
  readonly kind = { closed: false };

  private constructor(double: EngineDouble) {
    super();
    this.double = double;
  }

  static async open(nodeId: string, options: Options = {}, double: DoubleOptions = {}): Promise<VerbsNode> {
    const node = new VerbsNode(new EngineDouble(double));
    const environment = gpudirectEnvironment({ ZAP_GPUDIRECT_REGION_BYTES: String(64 * 2 ** 20) });
    const given = { nodeId, listen: "127.0.0.1:0", ...options, onEvent: node.onEvent };
    const resolved = resolveVerbsOptions({ ...given, limits: { ...LIMITS, ...options.limits } }, environment);
    const host = { runtime: "/lib/double.so", memory: null };
    const engine = await VerbsEngine.open(node.double.verbs, resolved, host, node.double.waking);
    const { address, poolOffset, poolBytes } = engine.info;
    const kind = areaKind(address + poolOffset, poolBytes, node.kind);
    node.wire = await VerbsWire.open(resolved, { engine, kind, device: null, debug: false });
    return node;
  }

  get address(): string {
    return this.wire.addresses[0]!;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.wire.close();
  }
}

/** A node of the sockets wire alone. */
export class PlainNode extends Noted implements AsyncDisposable {
  wire!: SocketsWire;

  static async open(
    nodeId: string,
    options: Options = {},
    above: Parameters<typeof SocketsWire.open>[2] = null,
  ): Promise<PlainNode> {
    const node = new PlainNode();
    const given = { nodeId, listen: "127.0.0.1:0", ...options, onEvent: node.onEvent };
    node.wire = await SocketsWire.open({ ...given, limits: { ...LIMITS, ...options.limits } }, null, above);
    return node;
  }

  get address(): string {
    return this.wire.addresses[0]!;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.wire.close();
  }
}

/** Takes `count` messages, releases them, and returns their numbers. */
export async function numbers(wire: { recv(): Promise<Envelope> }, count: number): Promise<number[]> {
  const found: number[] = [];
  for (let i = 0; i < count; i++) {
    const envelope = await within(wire.recv(), `message ${i} of ${count}`);
    found.push(numberOf(envelope.message));
    envelope.release();
  }
  return found;
}

export const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index);
