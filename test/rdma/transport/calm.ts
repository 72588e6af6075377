/** Nobody breaks anything: every size, in place, to several peers, and many. */
import { isMessage, messageOf } from "../../support/messages.ts";
import {
  check,
  checkClean,
  DEVICES,
  FAR_ADDRESS,
  mendLink,
  MIB,
  open,
  round,
  sendAll,
  spoilLink,
  startFar,
  takeAll,
} from "./kit.ts";
import { FEW, MANY } from "./streams.ts";

const SIZES = [
  ...[16, 20, 64, 255, 1_024, 4_096, 8_128, 8_191, 8_192, 8_193],
  ...[16_384, 65_536, 300_001, MIB, 4 * MIB, 16 * MIB],
];

export async function sizes(): Promise<void> {
  await using transport = await open("us", DEVICES[0]);
  await startFar("echo", "far", FAR_ADDRESS);
  check((await transport.connect(FAR_ADDRESS)) === "far", "another node");
  for (const [number, bytes] of SIZES.entries()) await round(transport, "far", bytes, number);
  const tiny = await transport.send("far", new Uint8Array(1)).catch((error: unknown) => String(error));
  check(
    typeof tiny === "string" && tiny.includes("at least 16 bytes"),
    `what has no header is refused: ${tiny}`,
  );
  // In rows, of mixed sizes: in order, and nothing is left behind.
  const mixed = Array.from({ length: 120 }, (_, at) => SIZES[(at * 7) % 13]!);
  await Promise.all([sendAll(transport, "far", mixed), takeAll(transport, mixed)]);
  // Where it lies in the pool, a large message is not copied.
  const buffer = await transport.allocBuffer(MIB);
  buffer.bytes.set(messageOf(MIB, 5));
  const before = transport.stats().rdma?.bytesCopiedOut;
  await transport.send("far", buffer.bytes);
  check(before !== undefined && transport.stats().rdma?.bytesCopiedOut === before, "nothing is copied");
  const back = await transport.recv();
  check(isMessage(back.message, 5), "a message in place");
  check(back.buffer !== null && back.buffer.bytes.length === MIB, "a managed buffer");
  check((back.buffer?.devicePtr !== null) === transport.caps.gpuResident, "where the GPU finds it");
  back.release();
  buffer.release();
  await checkClean(transport);
  const { rdma, bytesCopied, messagesIn, messagesOut } = transport.stats();
  check(bytesCopied === 0 && messagesIn === messagesOut, "the counters");
  console.log(`gpuResident ${transport.caps.gpuResident}, ${rdma?.method}, ${rdma?.device}`);
}

/** 10,000 messages each way at the same time. */
export async function many(): Promise<void> {
  await swap("many", MANY);
}

/** The same on a link that loses and delays packets: fewer, as each loss takes soft-RoCE a while. */
export async function lossy(): Promise<void> {
  spoilLink(0.5, 1);
  let retries = 0;
  try {
    retries = await swap("few", FEW);
  } finally {
    const lost = mendLink();
    check(lost > 0, "the link has lost packets");
    check(retries > 0, "the device has counted what it sent again");
  }
}

/** Resolves with how many requests the device has sent again. */
async function swap(role: string, lengths: readonly number[]): Promise<number> {
  await using transport = await open("us", DEVICES[0]);
  const far = await startFar(role, "far", FAR_ADDRESS);
  await transport.connect(FAR_ADDRESS);
  await Promise.all([sendAll(transport, "far", lengths), takeAll(transport, lengths.toReversed())]);
  check((await far.exited) === 0, "the far side is content");
  await checkClean(transport);
  return transport.stats().rdma?.retries ?? 0;
}

export async function peers(): Promise<void> {
  await using transport = await open("us", DEVICES[0]);
  const addresses = { one: "127.0.0.1:7001", two: "127.0.0.1:7002" };
  await Promise.all(Object.entries(addresses).map(([name, address]) => startFar("echo", name, address)));
  await Promise.all(Object.values(addresses).map((address) => transport.connect(address)));
  const lengths = Array.from({ length: 60 }, (_, at) => SIZES[at % 12]!);
  const sends = Object.keys(addresses).map((peer) => sendAll(transport, peer, lengths));
  const next = new Map(Object.keys(addresses).map((peer) => [peer, 0]));
  for (let i = 0; i < 2 * lengths.length; i++) {
    const { peer, message, release } = await taken(transport);
    const number = next.get(peer)!;
    check(message.length === lengths[number], `message ${number} of ${peer}`);
    check(isMessage(message, number), `message ${number} of ${peer}`);
    next.set(peer, number + 1);
    release();
  }
  await Promise.all(sends);
  check(transport.peers().length === 2, "two peers");
}

async function taken(transport: Awaited<ReturnType<typeof open>>) {
  const envelope = await transport.recv();
  return { peer: envelope.peer, message: envelope.message, release: () => envelope.release() };
}
