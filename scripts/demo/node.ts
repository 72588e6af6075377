/** One of the two processes. It takes orders on standard input and reports on standard output, a line of JSON each. */
import { HASH_BYTES, MessageBuilder, parse, pick, SLOT_BYTES, type Transport } from "../../lib/index.ts";
import { Contents } from "./contents.ts";
import { linesOf } from "./lines.ts";
import type { Received, Sent } from "./verdict.ts";

export type NodeName = "left" | "right";

export interface Wishes {
  /** How many messages each way. */
  readonly messages: number;
  readonly seed: number;
  /** Where a node listens. */
  readonly listen: string;
}

/** What a node says. */
export type Report =
  | {
      readonly type: "open";
      readonly transport: string;
      readonly reason: string;
      readonly addresses: string[];
    }
  | { readonly type: "progress"; readonly received: number; readonly bytes: number }
  /** Everything was sent, and as much has come as was to come. */
  | { readonly type: "complete" }
  | { readonly type: "account"; readonly sent: Sent[]; readonly received: Received[] }
  | { readonly type: "fault"; readonly text: string };

/** What a node is told; the end of its input ends it. */
export type Order = { readonly type: "connect"; readonly address: string } | { readonly type: "account" };

const PROGRESS_MILLIS = 100;

/** Message type and layout: `u32` sequence number, SHA-256 of the contents, the contents. */
const DEMO_MESSAGE = 0xd1;
const FIELD = { sequence: 0, hash: 8, contents: 8 + HASH_BYTES } as const;
const DATA_BYTES = FIELD.contents + SLOT_BYTES;

export async function runNode(name: string, wishes: Wishes): Promise<number> {
  try {
    await live(name, wishes);
    return 0;
  } catch (error) {
    report(error);
    return 1;
  }
}

async function live(name: string, wishes: Wishes): Promise<void> {
  if (name !== "left" && name !== "right") throw new Error("--node: left or right is needed");
  const other = name === "left" ? "right" : "left";
  // Whoever listens to our reports is gone, and so is the reason to be here.
  process.stdout.on("error", () => process.exit(1));
  const met = Promise.withResolvers<void>();
  const transport = await pick(undefined, {
    nodeId: name,
    listen: wishes.listen,
    allow: [other],
    onEvent: (event) => {
      if (event.type === "connected") met.resolve();
      if (event.type === "error") report(event.error);
    },
  });
  const { selection, addresses } = transport;
  tell({ type: "open", transport: transport.name, reason: selection.reason, addresses: [...addresses] });
  const node = new DemoNode(transport, other, wishes, name === "left" ? 0 : 1);
  met.promise.then(() => node.run()).catch(report);
  try {
    for await (const line of linesOf(Bun.stdin.stream())) {
      const order = JSON.parse(line) as Order;
      if (order.type === "connect") transport.connect(order.address).catch(report);
      else tell({ type: "account", sent: node.sent, received: node.received });
    }
  } finally {
    await transport.close();
  }
}

class DemoNode {
  readonly sent: Sent[] = [];
  readonly received: Received[] = [];
  private bytes = 0;
  private readonly transport: Transport;
  private readonly other: string;
  private readonly wishes: Wishes;
  private readonly direction: number;

  constructor(transport: Transport, other: string, wishes: Wishes, direction: number) {
    this.transport = transport;
    this.other = other;
    this.wishes = wishes;
    this.direction = direction;
  }

  async run(): Promise<void> {
    const timer = setInterval(() => this.progress(), PROGRESS_MILLIS);
    try {
      await Promise.all([this.sendAll(), this.receiveAll()]);
    } finally {
      clearInterval(timer);
      this.progress();
    }
    tell({ type: "complete" });
    // What comes beyond what was to come is an error too, so it must be seen.
    await this.receive(Infinity);
  }

  private async sendAll(): Promise<void> {
    const contents = await Contents.open(this.wishes.seed * 2 + this.direction);
    const builder = new MessageBuilder();
    for (let sequence = 0; sequence < this.wishes.messages; sequence++) {
      const bytes = await contents.next();
      const hash = Bun.SHA256.hash(bytes) as Uint8Array;
      const root = builder.reset().startObject(DATA_BYTES).setUint32(FIELD.sequence, sequence);
      root.setHash(FIELD.hash, hash).setBytes(FIELD.contents, bytes).finishAsRoot();
      await this.transport.send(this.other, builder.finish({ type: DEMO_MESSAGE }));
      this.sent.push([bytes.length, Buffer.from(hash).toString("hex")]);
    }
  }

  private receiveAll(): Promise<void> {
    return this.receive(this.wishes.messages);
  }

  private async receive(count: number): Promise<void> {
    if (this.received.length >= count) return;
    for await (const envelope of this.transport) {
      try {
        const message = parse(envelope.message);
        const root = message.root();
        const bytes = root.bytes(FIELD.contents);
        const hash = new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
        const stated = Buffer.from(root.hash(FIELD.hash) ?? []).toString("hex");
        const intact = message.type === DEMO_MESSAGE && hash === stated;
        this.received.push([root.uint32(FIELD.sequence), bytes.length, hash, intact]);
        this.bytes += bytes.length;
      } finally {
        envelope.release();
      }
      if (this.received.length >= count) return;
    }
  }

  private progress(): void {
    tell({ type: "progress", received: this.received.length, bytes: this.bytes });
  }
}

function report(error: unknown): void {
  tell({ type: "fault", text: error instanceof Error ? error.message : String(error) });
}

function tell(report: Report): void {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}
