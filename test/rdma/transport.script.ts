/**
 * One node over `gpudirect` in the guest, in the words of its arguments: `echo NAME DEVICE PORT` sends back what it gets; `SCENARIO` plays
 * the other side, starts echoes of its own, and prints `ok: SCENARIO` where all was as it should be.
 */
import { pick, type Transport, type TransportEvent } from "../../lib/index.ts";
import { isMessage, messageOf, numberOf } from "../support/messages.ts";

const MIB = 2 ** 20;
const DEVICES = [process.env["GUEST_DEVICE_0"] ?? "", process.env["GUEST_DEVICE_1"] ?? ""] as const;
const LIMITS = { frameBytes: 16 * MIB, sendMillis: 60_000, reconnectMaxMillis: 500 };
const SIZES = [
  20,
  64,
  255,
  1_024,
  4_096,
  8_128,
  8_191,
  8_192,
  8_193,
  16_384,
  65_536,
  300_001,
  MIB,
  4 * MIB,
  16 * MIB,
];

/** What is open here, for the last words of a scenario that hangs. */
const opened: Transport[] = [];
const HANG_MILLIS = Number(process.env["ZAP_TEST_HANG_MILLIS"] ?? 200_000);
const echoes: Bun.Subprocess[] = [];

/** Nothing goes wrong where nobody breaks anything. */
function tell(event: TransportEvent): void {
  if (event.type === "error") console.error(event.error.message);
}

async function open(
  nodeId: string,
  device: string,
  more: Parameters<typeof pick>[1] = {},
): Promise<Transport> {
  const env = { ...process.env, ZAP_GPUDIRECT_DEVICE: device, ZAP_TRANSPORT_QUIET: "1" };
  const transport = await pick("gpudirect", {
    nodeId,
    env,
    strict: true,
    limits: LIMITS,
    onEvent: tell,
    ...more,
  });
  opened.push(transport);
  return transport;
}

async function echo(name: string, device: string, port: string): Promise<void> {
  const transport = await open(name, device, { listen: `127.0.0.1:${port}`, onEvent: () => {} });
  console.log("open");
  process.on("SIGUSR1", () => console.error(`${name}: ${JSON.stringify(transport.stats())}`));
  for await (const envelope of transport) {
    // Where the other side is gone, so is its wish to hear of this.
    await transport.send(envelope.peer, envelope.message).catch(() => {});
    envelope.release();
  }
}

async function startEcho(name: string, device: string, port: number): Promise<Bun.Subprocess> {
  const words = [process.execPath, import.meta.path, "echo", name, device, String(port)];
  const child = Bun.spawn(words, { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  const { value } = await child.stdout.getReader().read();
  if (value === undefined) throw new Error(`${name} did not open`);
  echoes.push(child);
  return child;
}

function check(truth: boolean, what: string): void {
  if (!truth) throw new Error(what);
}

async function until(condition: () => boolean, what: string, millis = 60_000): Promise<void> {
  const deadline = performance.now() + millis;
  while (!condition()) {
    check(performance.now() < deadline, `waited in vain for ${what}`);
    await Bun.sleep(10);
  }
}

/** Sends a message and takes its echo. */
async function round(transport: Transport, peer: string, bytes: number, number: number): Promise<void> {
  await transport.send(peer, messageOf(bytes, number));
  const envelope = await transport.recv();
  const { message } = envelope;
  check(envelope.peer === peer, `an echo of ${envelope.peer}`);
  check(message.length === bytes && isMessage(message, number), `${bytes} bytes came back damaged`);
  envelope.release();
}

async function sizes(): Promise<void> {
  await using transport = await open("us", DEVICES[0]);
  await startEcho("far", DEVICES[1], 7001);
  check((await transport.connect("127.0.0.1:7001")) === "far", "another node");
  for (const [number, bytes] of SIZES.entries()) await round(transport, "far", bytes, number);
  // In rows, of mixed sizes: in order, and nothing is left behind.
  const mixed = Array.from({ length: 120 }, (_, at) => SIZES[(at * 7) % 12]!);
  const sending = (async () => {
    for (const [number, bytes] of mixed.entries()) await transport.send("far", messageOf(bytes, number));
  })();
  for (const [number, bytes] of mixed.entries()) {
    const envelope = await transport.recv();
    check(envelope.message.length === bytes && isMessage(envelope.message, number), `message ${number}`);
    envelope.release();
  }
  await sending;
  // Where it lies in the pool, a large message is not copied.
  const buffer = await transport.allocBuffer(MIB);
  buffer.bytes.set(messageOf(MIB, 5));
  await transport.send("far", buffer.bytes);
  const back = await transport.recv();
  check(isMessage(back.message, 5), "a message in place");
  check(back.buffer !== null && back.buffer.bytes.length === MIB, "a managed buffer");
  check((back.buffer?.devicePtr !== null) === transport.caps.gpuResident, "where the GPU finds it");
  back.release();
  buffer.release();
  await until(() => transport.stats().rdma?.heldBytes === 0, "all memory to come back");
  await until(() => transport.stats().queuedOutMessages === 0, "all to be told of");
  const { rdma, bytesCopied, undelivered, messagesIn, messagesOut } = transport.stats();
  check(rdma !== undefined && rdma.failures === 0 && rdma.rnrExceeded === 0, "no completion fails");
  check(bytesCopied === 0 && undelivered === 0 && messagesIn === messagesOut, "the counters");
  console.log(`gpuResident ${transport.caps.gpuResident}, ${rdma?.method}, ${rdma?.device}`);
}

async function peers(): Promise<void> {
  await using transport = await open("us", DEVICES[0]);
  await Promise.all([startEcho("one", DEVICES[1], 7001), startEcho("two", DEVICES[1], 7002)]);
  await Promise.all([transport.connect("127.0.0.1:7001"), transport.connect("127.0.0.1:7002")]);
  const count = 60;
  const next = new Map([
    ["one", 0],
    ["two", 0],
  ]);
  const sends = [...next.keys()].map(async (peer) => {
    for (let number = 0; number < count; number++)
      await transport.send(peer, messageOf(SIZES[number % 11]!, number));
  });
  for (let i = 0; i < 2 * count; i++) {
    const { peer, message, ...envelope } = await take(transport);
    const number = next.get(peer)!;
    check(isMessage(message, number), `message ${number} of ${peer}, and not ${numberOf(message)}`);
    next.set(peer, number + 1);
    envelope.release();
  }
  await Promise.all(sends);
  check(transport.peers().length === 2, "two peers");
}

async function take(transport: Transport) {
  const envelope = await transport.recv();
  return { peer: envelope.peer, message: envelope.message, release: () => envelope.release() };
}

/** A node that is to reach `far` at port 7001 whenever it is there, and what happens to it. */
async function keeping(): Promise<{ transport: Transport; events: TransportEvent[] }> {
  const events: TransportEvent[] = [];
  const transport = await open("us", DEVICES[0], {
    peers: { far: "127.0.0.1:7001" },
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

async function killed(): Promise<void> {
  const { transport, events } = await keeping();
  await using _ = transport;
  let far = await startEcho("far", DEVICES[1], 7001);
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
    far = await startEcho("far", DEVICES[1], 7001);
    await outcomes;
    for (const buffer of buffers) buffer.release();
    await again(transport, 1_000 + turn);
  }
  await until(() => transport.stats().queuedOutMessages === 0, "all to come back");
  check(transport.stats().rdma?.connections === 1, "one queue pair");
}

async function port(): Promise<void> {
  const { transport, events } = await keeping();
  await using _ = transport;
  await startEcho("far", DEVICES[1], 7001);
  await round(transport, "far", 100, 0);
  const link = (state: string): void => {
    const { success } = Bun.spawnSync(["ip", "link", "set", process.env["GUEST_NETDEV_1"] ?? "vb", state]);
    check(success, `ip link set ${state}`);
  };
  link("down");
  // It is accepted, and tried for as long as the device tries.
  await transport.send("far", messageOf(100, 1));
  await until(() => seen(events, "disconnected") > 0, "the loss");
  const lost = events.find((event) => event.type === "disconnected");
  check(lost?.type === "disconnected" && lost.error !== null, "an error");
  link("up");
  await again(transport, 2);
  const { rdma, undelivered } = transport.stats();
  check(undelivered > 0, "the report");
  check((rdma?.portEvents ?? 0) > 0 && rdma?.portUp === true, "the port's events");
}

const scenarios: Record<string, () => Promise<void>> = { sizes, peers, killed, port };
const [word = "", ...rest] = process.argv.slice(2);
if (word === "echo") await echo(rest[0] ?? "", rest[1] ?? "", rest[2] ?? "");
else {
  setTimeout(() => {
    console.log(`${word} hangs: ${JSON.stringify(opened.map((transport) => transport.stats()))}`);
    for (const far of echoes) far.kill("SIGUSR1");
    setTimeout(() => process.exit(1), 2_000);
  }, HANG_MILLIS).unref();
  try {
    await scenarios[word]!();
    console.log(`ok: ${word}`);
  } finally {
    for (const far of echoes) far.kill("SIGKILL");
  }
  process.exit(0);
}
