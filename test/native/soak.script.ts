/**
 * `bun soak.script.ts SHIMS DRIVER MESSAGES [LSAN]`: two nodes of the `uma` transport over the CUDA shim in SHIMS and the double of its driver
 * at DRIVER exchange so many messages, while other peers come and go and buffers are taken and checked. Prints one line of JSON. LSAN is the path of
 * the sanitizer's library, where the shim was built with it: then it is asked for leaks at the end.
 */
import { dlopen } from "bun:ffi";
import { checkHeaders } from "../../lib/kernels/index.ts";
import { pollerVerbs } from "../../lib/ffi/index.ts";
import { openDeviceMemory } from "../../lib/memory/index.ts";
import type { Transport } from "../../lib/transport/index.ts";
import { openOver } from "../../lib/transport/uma.ts";
import { frameOf, messageOf, numberOf } from "../support/messages.ts";
import { RawSocket } from "../support/raw.ts";

const [shims = "", driver = "", count = "0", lsan = ""] = process.argv.slice(2);
const MESSAGES = Number(count);
/** Mostly small, some that get a slab of their own, a few larger than any slab. */
const SIZES = [64, 256, 20, 1_000, 4_096, 300, 64, 30_000, 256, 16, 70_000, 128];
const LARGE = 1_500_000;

const { shim, transport: a } = await open("a");
const { transport: b } = await open("b");
await a.connect(b.addresses[0]!);

async function open(nodeId: string) {
  const device = { kind: "cuda", runtime: driver, index: 0, timeoutMillis: 10_000 } as const;
  const memory = await openDeviceMemory(device, { ZAP_LIB_DIR: shims });
  const settings = { poolBytes: 192 * 1024 * 1024, debug: false };
  const selection = { name: "uma", reason: "a test", tried: [] } as const;
  const options = { nodeId, listen: "127.0.0.1:0", onEvent: () => {} };
  const transport = await openOver(memory, pollerVerbs(memory.shim), settings, options, selection);
  return { shim: memory.shim, transport };
}

const sizeOf = (n: number): number => (n % 5_000 === 4_999 ? LARGE : SIZES[n % SIZES.length]!);

async function send(from: Transport, to: string): Promise<void> {
  // Each is sent again only after `send` has resolved: then its bytes are ours to change.
  const messages = new Map([...SIZES, LARGE].map((size) => [size, messageOf(size)]));
  for (let n = 0; n < MESSAGES; n++) {
    const message = messages.get(sizeOf(n))!;
    if (message.length >= 20) new DataView(message.buffer).setUint32(16, n, true);
    await from.send(to, message);
  }
}

let checked = 0;
let wrong = 0;

async function receive(at: Transport): Promise<void> {
  let n = 0;
  while (n < MESSAGES) {
    const envelope = await at.recv();
    if (envelope.peer.length > 1) {
      // One of those that come and go.
      envelope.release();
      continue;
    }
    const { message } = envelope;
    if (message.length !== sizeOf(n) || (message.length >= 20 && numberOf(message) !== n)) wrong++;
    if (n % 1_000 === 0) {
      const { verdicts, where } = await checkHeaders([envelope.buffer!]);
      if (verdicts[0] !== 0 || where !== "cuda") wrong++;
      checked++;
    }
    envelope.release();
    n++;
  }
}

let visits = 0;

/** Peers that connect, say something, and leave in one way or another. */
async function visit(at: Transport): Promise<void> {
  while (!over) {
    const raw = await RawSocket.connect(at.addresses[0]!);
    await raw.greet(`visitor-${visits++}`, 0);
    raw.write(frameOf(messageOf(2_000)));
    // In the middle of a frame, too.
    raw.write(frameOf(messageOf(100_000)).subarray(0, visits % 3 === 0 ? 50_000 : 0));
    await Bun.sleep(1);
    if (visits % 2 === 0) raw.terminate();
    else raw.shutdown();
    await Bun.sleep(4);
    raw.terminate();
  }
}

let over = false;
let allocated = 0;

async function allocate(at: Transport): Promise<void> {
  while (!over) {
    const buffers = await Promise.all([100, 5_000, 60_000, 1_200_000].map((size) => at.allocBuffer(size)));
    for (const buffer of buffers) {
      buffer.bytes[0] = 1;
      await buffer.handOver("gpu");
      buffer.release();
      allocated++;
    }
    await Bun.sleep(1);
  }
}

const beside = [visit(b), allocate(a), allocate(b)];
await Promise.all([send(a, "b"), receive(b), send(b, "a"), receive(a)]);
over = true;
await Promise.all(beside);
await Bun.sleep(50);
const reports = [await a.close(), await b.close()];
const live = shim.call.live();
const leaks = lsan === "" ? 0 : leakCheck(lsan);
console.log(
  JSON.stringify({ messages: 2 * MESSAGES, wrong, checked, visits, allocated, reports, live, leaks }),
);
process.exit(0);

/** 1 where something has leaked; what it was is on standard error then. */
function leakCheck(path: string): number {
  const check = "__lsan_do_recoverable_leak_check";
  return dlopen(path, { [check]: { args: [], returns: "i32" } }).symbols[check]!() as number;
}
