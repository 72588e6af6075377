/**
 * A node at one end of a bad link, in a process of its own, for dpdk-lossy.test.ts. Takes its task as JSON; says what happens as one JSON
 * line each; closes when its standard input ends.
 *
 * Roles: `exchange` sends messages of every size, and takes as many, at the same time; `flood` sends until it is told to close, over
 * however many flows it takes; `stuck` takes nothing; `sink` takes everything, and says what came.
 */
import { pick, type Transport, type TransportOptions } from "../../lib/transport/index.ts";
import { isMessage, messageOf, numberOf } from "../support/messages.ts";
import { diceOf } from "../support/properties.ts";
import { until } from "../support/wait.ts";

export interface LossyTask {
  readonly role: "exchange" | "flood" | "stuck" | "sink";
  readonly options: Omit<TransportOptions, "onEvent">;
  /** Where to dial; else it waits to be dialled. */
  readonly to?: string;
  /** Messages to exchange, or to take. */
  readonly count?: number;
}

export interface LossyLine {
  readonly event: "open" | "up" | "waits" | "down" | "taken" | "closed" | "failed";
  readonly address?: string;
  readonly error?: string;
  /** Numbers of messages: the first that was taken; how many were. */
  readonly first?: number;
  readonly taken?: number;
  /** How many `send` calls had resolved. */
  readonly accepted?: number;
  readonly undelivered?: number;
  readonly troubles?: readonly string[];
  readonly drops?: Readonly<Record<string, number>>;
  readonly segmentsAgain?: number;
  readonly report?: unknown;
}

/** 16 bytes to 1 MiB, small ones more often; both ends know them. */
export function sizeOf(number: number): number {
  const dice = diceOf(number + 1);
  dice();
  return number % 16 === 15 ? 1 << 20 : Math.max(20, Math.floor(16 * 2 ** (dice() * 13)));
}

const FLOOD_BYTES = 20_000;
const troubles: string[] = [];

function say(line: LossyLine): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function take(transport: Transport, number: number, bytes: number): Promise<void> {
  const { message, release } = await next(transport);
  if (message.length !== bytes)
    throw new Error(`message ${number} has ${message.length} bytes, not ${bytes}`);
  if (!isMessage(message, number)) throw new Error(`message ${number} is damaged or out of order`);
  release();
}

async function next(transport: Transport) {
  const envelope = await transport.recv();
  return { message: envelope.message, release: () => envelope.release() };
}

const ROLES: Record<
  LossyTask["role"],
  (transport: Transport, peer: string, task: LossyTask) => Promise<void>
> = {
  async exchange(transport, peer, { count = 0 }) {
    const sending = (async () => {
      for (let n = 0; n < count; n++) await transport.send(peer, messageOf(sizeOf(n), n));
    })();
    for (let n = 0; n < count; n++) await take(transport, n, sizeOf(n));
    await sending;
    say({ event: "taken", taken: count });
  },

  async flood(transport, peer) {
    let accepted = 0;
    let waits = false;
    const watch = setInterval(() => {
      if (transport.stats().waitingSends > 0 && !waits) say({ event: "waits", accepted });
      waits = transport.stats().waitingSends > 0;
    }, 100);
    down = () => {
      const { undelivered } = transport.stats();
      say({ event: "down", accepted, undelivered, troubles });
    };
    // Until it is told to close.
    for (; ; accepted++) {
      try {
        await transport.send(peer, messageOf(FLOOD_BYTES, accepted));
      } catch {
        return clearInterval(watch);
      }
    }
  },

  async stuck() {},

  async sink(transport, _, { count = 0 }) {
    const { message, release } = await next(transport);
    const first = numberOf(message);
    release();
    for (let n = first + 1; n < first + count; n++) await take(transport, n, FLOOD_BYTES);
    say({ event: "taken", first, taken: count });
  },
};

let down = (): void => {};

async function main(task: LossyTask): Promise<void> {
  const transport = await pick("dpdk", {
    strict: true,
    ...task.options,
    onEvent: (event) => {
      if (event.type === "error") troubles.push(event.error.code);
      if (event.type === "disconnected") {
        if (event.error !== null) troubles.push(`disconnected: ${event.error.code}`);
        // What else it brings is told next.
        setTimeout(() => down());
      }
    },
  });
  say({ event: "open", address: transport.addresses[0] ?? "nowhere" });
  if (task.to !== undefined) await transport.connect(task.to);
  await until(() => transport.peers().length > 0, "a peer", 20_000);
  say({ event: "up" });
  const playing = ROLES[task.role](transport, transport.peers()[0]!, task);
  playing.catch((error: unknown) => {
    say({ event: "failed", error: String(error), troubles });
    process.exit(1);
  });
  await Bun.stdin.text();
  const { drops, port, undelivered } = transport.stats();
  const report = await transport.close();
  say({ event: "closed", drops, segmentsAgain: port?.segmentsAgain ?? 0, undelivered, report, troubles });
}

if (import.meta.main) {
  main(JSON.parse(process.argv[2] ?? "{}") as LossyTask).catch((error: unknown) => {
    say({ event: "failed", error: String(error), troubles });
    process.exit(1);
  });
}
