/**
 * Two processes over the `gpudirect` transport, in the guest: `bun bench/rdma/bun-pair.ts CORES CASES` measures, and starts the other end, which
 * is the same program. CORES: `one` for both, `two` for one each, `free`. CASES is JSON, an array of `Case`. Prints a line of JSON for each.
 */
import { dlopen } from "bun:ffi";
import { pick, type Envelope, type Transport } from "../../lib/index.ts";

export interface Case {
  readonly mode: "roundtrip" | "oneway";
  readonly bytes: number;
  readonly count: number;
  /** `await`: the event loop is woken; `poll`: the ring is asked in a loop that gives way between two looks. */
  readonly wait: "await" | "poll";
  /** What is sent lies in a buffer of `allocBuffer`, or anywhere. */
  readonly memory: "pool" | "plain";
}

export interface Measured extends Case {
  /** Microseconds of each trip, or megabytes a second. */
  readonly value: number;
  readonly median: number | null;
  /** Received bytes that were copied, both ends, and whether what was sent was copied. */
  readonly bytesCopied: number;
  readonly sendCopied: boolean;
  readonly cpuMicros: number;
}

const PORT = 7600;
const DEPTH = 16;
/** Looks in vain after which the event loop has its turn. */
const LOOKS = 256;
const PROLOGUE = 64;
const { symbols } = dlopen("libc.so.6", { sched_yield: { args: [], returns: "i32" } });

function messageInto(bytes: Uint8Array): Uint8Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  bytes.fill(0x5b);
  view.setUint32(0, 0x0050415a, true);
  view.setUint16(4, 1, true);
  view.setUint16(6, 1 << 8, true);
  view.setUint32(8, 0, true);
  view.setUint32(12, bytes.length, true);
  return bytes;
}

async function open(nodeId: string, device: string, listen?: string): Promise<Transport> {
  return pick("gpudirect", {
    nodeId,
    strict: true,
    env: { ...process.env, ZAP_GPUDIRECT_DEVICE: device, ZAP_TRANSPORT_QUIET: "1" },
    limits: { sendMillis: 60_000 },
    ...(listen === undefined ? {} : { listen }),
  });
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function next(transport: Transport, wait: Case["wait"]): Promise<Envelope> {
  if (wait === "await") return transport.recv();
  for (let looks = 1; ; looks++) {
    const envelope = transport.tryRecv();
    if (envelope !== null) return envelope;
    if (looks % LOOKS === 0) await turn();
    else symbols.sched_yield();
  }
}

/** One end's messages of a size, sent in turn from as many places as may be on their way. */
class Sender {
  private readonly transport: Transport;
  private readonly peer: string;
  private readonly places: Uint8Array[] = [];
  private readonly sent: Promise<void>[] = [];
  private readonly releases: (() => void)[] = [];
  private turn = 0;

  private constructor(transport: Transport, peer: string) {
    this.transport = transport;
    this.peer = peer;
  }

  static async of(
    transport: Transport,
    peer: string,
    bytes: number,
    memory: Case["memory"],
  ): Promise<Sender> {
    const sender = new Sender(transport, peer);
    for (let i = 0; i < DEPTH; i++) {
      if (memory === "plain") sender.places.push(messageInto(new Uint8Array(bytes)));
      else {
        const buffer = await transport.allocBuffer(bytes);
        sender.places.push(messageInto(buffer.bytes.subarray(0, bytes)));
        sender.releases.push(() => buffer.release());
      }
    }
    return sender;
  }

  /** Whether the transport copies such a message: `trySend` takes no other. */
  async copies(): Promise<boolean> {
    const taken = this.transport.trySend(this.peer, this.places[0]!);
    if (!taken) await this.transport.send(this.peer, this.places[0]!);
    return taken;
  }

  /** Waits only where the place is still on its way. */
  async send(): Promise<void> {
    const at = this.turn++ % DEPTH;
    await this.sent[at];
    this.sent[at] = this.transport.send(this.peer, this.places[at]!);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.sent);
    for (const release of this.releases) release();
  }
}

async function echo(device: string): Promise<void> {
  const transport = await open("far", device, `127.0.0.1:${PORT}`);
  console.log("open");
  for (;;) {
    const first = await transport.recv();
    const text = new TextDecoder().decode(first.message.subarray(PROLOGUE));
    first.release();
    const one = JSON.parse(text) as Case;
    const { mode, count, wait } = one;
    const before = transport.stats().bytesCopied;
    await using sender = await Sender.of(transport, "us", mode === "oneway" ? 64 : one.bytes, one.memory);
    for (let i = 0; i < count + 1; i++) {
      (await next(transport, wait)).release();
      if (mode === "roundtrip" && i > 0) await sender.send();
    }
    if (mode === "oneway") await sender.send();
    const copied = messageInto(new Uint8Array(64));
    new DataView(copied.buffer).setFloat64(16, transport.stats().bytesCopied - before, true);
    await transport.send("us", copied);
  }
}

async function measure(transport: Transport, one: Case): Promise<Measured> {
  const { mode, bytes, count, wait } = one;
  const text = new TextEncoder().encode(JSON.stringify(one));
  const prologue = new Uint8Array(PROLOGUE + text.length);
  prologue.set(text, PROLOGUE);
  new DataView(prologue.buffer).setUint32(12, prologue.length, true);
  prologue.set(messageInto(new Uint8Array(PROLOGUE)).subarray(0, 8));
  const before = transport.stats().bytesCopied;
  await using sender = await Sender.of(transport, "far", bytes, one.memory);
  await transport.send("far", prologue);
  const sendCopied = await sender.copies();
  const trips: number[] = [];
  const busy = process.cpuUsage();
  const begin = performance.now();
  let last = begin;
  for (let i = 0; i < count; i++) {
    await sender.send();
    if (mode === "oneway") continue;
    (await next(transport, wait)).release();
    const now = performance.now();
    trips.push(now - last);
    last = now;
  }
  if (mode === "oneway") (await next(transport, wait)).release();
  const millis = performance.now() - begin;
  const cpu = process.cpuUsage(busy);
  const end = await transport.recv();
  const { message } = end;
  const theirs = new DataView(message.buffer, message.byteOffset, message.length).getFloat64(16, true);
  end.release();
  trips.sort((a, b) => a - b);
  return {
    ...one,
    value: mode === "roundtrip" ? (millis * 1_000) / count : (bytes * count) / millis / 1_000,
    median: mode === "roundtrip" ? trips[count >> 1]! * 1_000 : null,
    bytesCopied: transport.stats().bytesCopied - before + theirs,
    sendCopied,
    cpuMicros: (cpu.user + cpu.system) / count,
  };
}

const [cores = "free", cases = "[]"] = process.argv.slice(2);
if (cores === "echo") await echo(process.env["GUEST_DEVICE_1"] ?? "");
else {
  const apart = cores === "two" ? ["taskset", "2"] : [];
  const far = Bun.spawn([...apart, process.execPath, import.meta.path, "echo"], {
    ...{ stdin: "ignore", stdout: "pipe", stderr: "inherit" },
  });
  const transport = await open("us", process.env["GUEST_DEVICE_0"] ?? "");
  await far.stdout.getReader().read();
  await transport.connect(`127.0.0.1:${PORT}`);
  for (const one of JSON.parse(cases) as Case[]) console.log(JSON.stringify(await measure(transport, one)));
  far.kill("SIGKILL");
  process.exit(0);
}
