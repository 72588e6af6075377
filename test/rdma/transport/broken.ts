/** Somebody breaks something: a process, a port. What was on its way is reported, memory comes back, and there is another connection. */
import type { Transport, TransportEvent } from "../../../lib/index.ts";
import { messageOf, numberOf } from "../../support/messages.ts";
import { check, DEVICES, FAR_ADDRESS, MIB, open, round, setLink, startFar, until } from "./kit.ts";

/** A node that is to reach `far` whenever it is there, and what happens to it. */
async function keeping(): Promise<{ transport: Transport; events: TransportEvent[] }> {
  const events: TransportEvent[] = [];
  const transport = await open("us", DEVICES[0], {
    peers: { far: FAR_ADDRESS },
    onEvent: (event) => void events.push(event),
  });
  return { transport, events };
}

const seen = (events: readonly TransportEvent[], type: TransportEvent["type"]): number =>
  events.filter((event) => event.type === type).length;

/** Sends until an echo comes: what was on its way when the connection ended is lost. */
async function again(transport: Transport, number: number): Promise<void> {
  for (let envelope = transport.tryRecv(); envelope !== null; envelope = transport.tryRecv())
    envelope.release();
  const deadline = performance.now() + 60_000;
  for (;;) {
    check(performance.now() < deadline, "no echo of the peer that came back");
    await transport.send("far", messageOf(100, number));
    for (let i = 0; i < 100; i++) {
      const envelope = transport.tryRecv();
      const found = envelope !== null && numberOf(envelope.message) === number;
      envelope?.release();
      if (found) return;
      if (envelope === null) await Bun.sleep(20);
    }
  }
}

export async function killed(): Promise<void> {
  const { transport, events } = await keeping();
  await using _ = transport;
  let far = await startFar("echo", "far", FAR_ADDRESS);
  await round(transport, "far", 100, 0);
  for (let turn = 1; turn <= 2; turn++) {
    const buffers = await Promise.all([0, 1, 2].map(() => transport.allocBuffer(4 * MIB)));
    for (const buffer of buffers) buffer.bytes.set(messageOf(4 * MIB, turn));
    const sends = buffers.map((buffer) => transport.send("far", buffer.bytes));
    const outcomes = Promise.allSettled(sends);
    await until(() => (transport.stats().rdma?.sends ?? 0) > 0, "a message on its way");
    await Bun.sleep(50);
    far.kill("SIGKILL");
    await until(() => seen(events, "disconnected") === turn, "its end");
    far = await startFar("echo", "far", FAR_ADDRESS);
    await outcomes;
    for (const buffer of buffers) buffer.release();
    await again(transport, 1_000 + turn);
  }
  await until(() => transport.stats().queuedOutMessages === 0, "all to come back");
  check(transport.stats().rdma?.connections === 1, "one queue pair");
}

export async function port(): Promise<void> {
  const { transport, events } = await keeping();
  await using _ = transport;
  await startFar("echo", "far", FAR_ADDRESS);
  await round(transport, "far", 100, 0);
  setLink("down");
  // It is accepted, and tried for as long as the device tries.
  await transport.send("far", messageOf(100, 1));
  await until(() => seen(events, "disconnected") > 0, "the loss");
  const lost = events.find((event) => event.type === "disconnected");
  check(lost?.type === "disconnected" && lost.error !== null, "an error");
  setLink("up");
  await again(transport, 2);
  const { rdma, undelivered } = transport.stats();
  check(undelivered > 0, "the report");
  check((rdma?.portEvents ?? 0) > 0 && rdma?.portUp === true, "the port's events");
}
