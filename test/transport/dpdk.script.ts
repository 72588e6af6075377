/**
 * What `dpdk.test.ts` does in a process of its own: DPDK's environment, once started, stays until the process ends. Both ends of a pair
 * are in it. Prints one JSON line with what came of it.
 */
import { openShim } from "../../lib/ffi/index.ts";
import {
  pick,
  type Transport,
  type TransportEvent,
  type TransportOptions,
} from "../../lib/transport/index.ts";
import { checkHeaders } from "../../lib/kernels/index.ts";
import type { SlabBuffer } from "../../lib/memory/index.ts";
import { openDpdk } from "../../lib/transport/dpdk.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { DoubleHost } from "../support/double-host.ts";
import { Child } from "../support/child.ts";
import type { DpdkEnv } from "../support/dpdk.ts";
import { isMessage, messageOf, numberOf } from "../support/messages.ts";
import { until, within } from "../support/wait.ts";

interface Ends {
  readonly server: DpdkEnv;
  readonly client: DpdkEnv;
}

const events: string[] = [];

function open(name: string, env: DpdkEnv, options: TransportOptions = {}): Promise<Transport> {
  const onEvent = (event: TransportEvent): void =>
    void events.push(`${name}: ${event.type === "error" ? event.error.message : event.type}`);
  return pick("dpdk", {
    nodeId: name,
    onEvent,
    strict: true,
    env: { ZAP_TRANSPORT_QUIET: "1", ...env },
    ...options,
  });
}

async function connected({ server, client }: Ends, options: TransportOptions = {}) {
  const a = await open("a", server, { listen: ":0", ...options });
  const b = await open("b", client, options);
  const peer = await b.connect(a.addresses.at(-1)!);
  if (peer !== "a") throw new Error(`connected with ${peer}`);
  return { a, b };
}

const CASES = {
  /** Opens and closes three times; messages of all sizes each time, both ways. */
  async again(ends: Ends) {
    const rounds = [];
    for (let round = 0; round < 3; round++) {
      const { a, b } = await connected(ends);
      for (const bytes of [16, 64, 1_000, 1_400, 1_500, 5_000, 70_000, 3_000_000]) {
        for (const [from, to, id] of [
          [b, a, "a"],
          [a, b, "b"],
        ] as const) {
          await from.send(id, messageOf(Math.max(bytes, 20), bytes));
          const envelope = await within(to.recv(), `a message of ${bytes} bytes`);
          if (!isMessage(envelope.message, bytes)) throw new Error(`${bytes} bytes came damaged`);
          envelope.release();
        }
      }
      const { port, drops, bytesCopied } = a.stats();
      // A segment may well have been sent twice; but nothing is to be wrong with messages or frames.
      const wrong = Object.keys(drops).filter((drop) => !drop.startsWith("datagram."));
      const reports = [await a.close(), await b.close()];
      rounds.push({
        driver: port!.driver,
        queues: port!.queues.length,
        wrong,
        copied: bytesCopied > 0,
        reports,
      });
    }
    return rounds;
  },

  /** A receiver that takes nothing holds its sender up, and gets everything in order once it takes. */
  async pressure(ends: Ends) {
    const limits = { sendQueueBytes: 100_000, recvQueueBytes: 200_000 };
    const { a, b } = await connected(ends, { limits });
    let sent = 0;
    const sending = (async () => {
      for (; sent < 3_000; sent++) await b.send("a", messageOf(1_000, sent));
    })();
    let before = -1;
    while (sent !== before) {
      before = sent;
      await Bun.sleep(300);
    }
    const stuck = sent;
    const { queuedInBytes } = a.stats();
    for (let number = 0; number < 3_000; number++) {
      const envelope = await within(a.recv(), `message ${number}`);
      if (numberOf(envelope.message) !== number) throw new Error(`message ${number} is out of order`);
      envelope.release();
    }
    await sending;
    await Promise.all([a.close(), b.close()]);
    return { held: stuck < 1_000, queued: queuedInBytes <= 210_000 };
  },

  /** What was accepted before `close()` gets there, also what waits for credits. */
  async flush(ends: Ends) {
    const { a, b } = await connected(ends);
    // More than the receiver lets in, less than it and the sender hold together.
    const count = 2_300;
    for (let number = 0; number < count; number++) await b.send("a", messageOf(2_000, number));
    const closing = b.close();
    for (let number = 0; number < count; number++) {
      const envelope = await within(a.recv(), `message ${number}`);
      if (!isMessage(envelope.message, number))
        throw new Error(`message ${number} is damaged or out of order`);
      envelope.release();
    }
    const reports = [await closing, await a.close()];
    return { reports, orderly: events.every((event) => /: (connected|disconnected)$/.test(event)) };
  },

  /** Buffers of the pool and received messages are sent where they lie; both outlive the transport. */
  async buffers(ends: Ends) {
    const { a, b } = await connected(ends);
    const buffer = await b.allocBuffer(100_000);
    buffer.bytes.set(messageOf(100_000, 1));
    await b.send("a", buffer.bytes);
    const first = await within(a.recv(), "the first message");
    await a.send("b", first.message);
    const second = await within(b.recv(), "the message that came back");
    const same = isMessage(second.message, 1);
    const reports = [await a.close(), await b.close()];
    const kept = isMessage(first.message, 1) && isMessage(second.message, 1) && isMessage(buffer.bytes, 1);
    const live = async (): Promise<number> => (await openShim("libzap_dpdk", ends.server)).call.live();
    const before = await live();
    for (const each of [first, second, buffer]) each.release();
    return { same, kept, buffers: reports.map((each) => each.buffers), live: [before, await live()] };
  },

  /** What cannot be opened leaves the process as it was, and another transport in its place. */
  async fails(ends: Ends) {
    const refused = async (env: DpdkEnv, options: TransportOptions = {}): Promise<string> => {
      const error = await open("x", { ...ends.server, ...env }, options).then(
        (transport) => transport.close().then(() => ({ code: "opened" })),
        (cause: unknown) => cause as { code: string },
      );
      return error.code;
    };
    const codes = [
      // First, as DPDK is not started for it: it would not start again.
      await refused({ ZAP_DPDK_EAL_CPUS: "0-999" }),
      await refused({ ZAP_DPDK_VDEV: "net_no_such_driver0" }),
      await refused({}, { listen: "127.0.0.1:0" }),
      await refused({ ZAP_DPDK_REGION_BYTES: String(40 * 2 ** 20) }),
      await refused({ ZAP_DPDK_ADDRESS: "nowhere" }),
    ];
    const env = { ZAP_TRANSPORT_QUIET: "1", ...ends.server, ZAP_DPDK_VDEV: "net_no_such_driver0" };
    const other = await pick("dpdk", { env, onEvent: () => {} });
    const fallback = [other.name, other.selection.tried[0]?.code];
    await other.close();
    const { a, b } = await connected(ends);
    await Promise.all([a.close(), b.close()]);
    return { codes, fallback };
  },

  /** Both dial at once, again and again: exactly one connection comes of it each time. */
  async twins({ server, client }: Ends) {
    const a = await open("a", server, { listen: "10.99.0.1:7001" });
    const b = await open("b", client, { listen: "10.99.0.2:7002" });
    const outcomes = [];
    for (let round = 0; round < 5; round++) {
      const names = await within(
        Promise.all([a.connect("10.99.0.2:7002"), b.connect("10.99.0.1:7001"), b.connect("10.99.0.1:7001")]),
        "both",
      );
      await Promise.all([a.send("b", messageOf(64, round)), b.send("a", messageOf(64, round))]);
      const came = await within(Promise.all([a.recv(), b.recv()]), "a message each way");
      outcomes.push(`${names} ${a.peers()} ${b.peers()} ${came.map((each) => numberOf(each.message))}`);
      for (const each of came) each.release();
    }
    await Promise.all([a.close(), b.close()]);
    return outcomes;
  },

  /** A GPU, or its double, knows the region until the last message is released. */
  async gpu({ server, client }: Ends) {
    const made = new DoubleHost("cuda", {}, {}, { ...server, ZAP_TRANSPORT_QUIET: "1" });
    const selection = { name: "dpdk", reason: "", tried: [] } as const;
    const a = await openDpdk({ nodeId: "a", listen: ":0", onEvent: () => {} }, selection, made.host);
    const b = await open("b", client);
    await b.connect(a.addresses[0]!);
    await b.send("a", messageOf(100, 1));
    await b.send("a", messageOf(100_000, 2));
    const envelopes = [await within(a.recv(), "one"), await within(a.recv(), "two")];
    const buffer = (await a.allocBuffer(1_000)) as SlabBuffer;
    buffer.bytes.set(messageOf(1_000, 3));
    const buffers = [buffer, ...envelopes.map((each) => each.buffer as SlabBuffer)];
    const bases = new Set(buffers.map((each) => each.devicePtr! - BigInt(each.address))).size;
    const kinds = buffers.map((each) => each.kind.name);
    const first = await checkHeaders(buffers);
    buffer.release();
    await Promise.all([a.close(), b.close()]);
    // The pool has come to its end, and the messages have not.
    const later = await checkHeaders(buffers.slice(1));
    for (const each of envelopes) each.release();
    const clean = made.reported().map((line) => /^release (?!.*=[1-9]).*faults=0$/.test(line));
    forgetHosts();
    return {
      resident: a.caps.gpuResident,

      where: [first.where, later.where],
      verdicts: [[...first.verdicts], [...later.verdicts]],
      clean,
      bases,
      kinds,
    };
  },

  /** A GPU that does not take the memory costs the transport nothing. */
  async noGpu({ server, client }: Ends) {
    const behaviour = { "fail.cuMemHostRegister_v2": 801 };
    const made = new DoubleHost("cuda", behaviour, {}, { ...server, ZAP_TRANSPORT_QUIET: "1" });
    const selection = { name: "dpdk", reason: "", tried: [] } as const;
    const a = await openDpdk({ nodeId: "a", listen: ":0", onEvent: () => {} }, selection, made.host);
    const b = await open("b", client);
    await b.connect(a.addresses[0]!);
    await b.send("a", messageOf(100_000, 2));
    const envelope = await within(a.recv(), "a message");
    const { devicePtr } = envelope.buffer!;
    const { where } = await checkHeaders([envelope.buffer!]);
    envelope.release();
    await Promise.all([a.close(), b.close()]);
    const clean = made.reported().map((line) => /^release (?!.*=[1-9]).*faults=0$/.test(line));
    forgetHosts();
    return { resident: a.caps.gpuResident, devicePtr, where, clean };
  },

  /** What a wrong address, another allow-list and an abort say. */
  async refuses(ends: Ends) {
    const a = await open("a", ends.server, { listen: ":0", allow: ["friend"] });
    const limits = { handshakeMillis: 400, sendMillis: 600 };
    const b = await open("b", ends.client, { limits });
    const failure = (promise: Promise<unknown>): Promise<string> =>
      promise.then(
        () => "resolved",
        (error: { code: string }) => error.code,
      );
    const codes = [
      await failure(b.connect(a.addresses[0]!)),
      await failure(b.connect("10.99.0.77:1")),
      await failure(b.connect(a.addresses[0]!.replace(/\d+$/, "1"))),
      await failure(b.connect("10.99.0.77:1", { signal: AbortSignal.timeout(20) })),
      await failure(b.send("a", messageOf(64))),
    ];
    const { drops } = a.stats();
    await Promise.all([a.close(), b.close()]);
    return { codes, turnedAway: (drops["datagram.allow"] ?? 0) > 0 };
  },

  /** A process that was killed leaves the file of its memif socket behind; the next one listens there all the same. */
  async killed({ server, client }: Ends) {
    const options = { nodeId: "a", listen: ":0" };
    const child = await Child.start({ role: "idle", transport: "dpdk", options, env: server });
    await child.kill();
    const { a, b } = await connected({ server, client });
    return [await a.close(), await b.close()];
  },

  /** A socket without a file, DPDK's default, is free again too; it leaves nobody listening. */
  async abstract({ server, client }: Ends) {
    const without = ({ ZAP_DPDK_VDEV = "", ...rest }: DpdkEnv): DpdkEnv => ({
      ...rest,
      ZAP_DPDK_VDEV: ZAP_DPDK_VDEV.replace(",socket-abstract=no", ""),
    });
    const ends = { server: without(server), client: without(client) };
    for (let round = 0; round < 3; round++) {
      const { a, b } = await connected(ends);
      await Promise.all([a.close(), b.close()]);
    }
    const name = `@${/socket=([^,]+)/.exec(server["ZAP_DPDK_VDEV"]!)![1]}`;
    return (await Bun.file("/proc/net/unix").text()).split("\n").filter((line) => line.endsWith(name)).length;
  },

  /** What is closed is nobody's any more. */
  async forgets({ server }: Ends) {
    const closed: WeakRef<object>[] = [];
    for (let round = 0; round < 5; round++) {
      const transport = await open("a", server, { listen: ":0" });
      closed.push(new WeakRef((transport as unknown as { wire: object }).wire));
      await transport.close();
    }
    for (let round = 0; round < 5; round++) {
      await Bun.sleep(20);
      Bun.gc(true);
    }
    return closed.filter((each) => each.deref() !== undefined).length;
  },

  /** The other process is killed while messages are on their way to it. */
  async loss({ server, client }: Ends) {
    const told: TransportEvent[] = [];
    const limits = { keepaliveMillis: 60, recvQueueBytes: 10_000 };
    const a = await open("a", server, { limits, onEvent: (event) => void told.push(event) });
    const options = { nodeId: "b", listen: ":0", limits };
    const child = await Child.start({ role: "idle", transport: "dpdk", options, env: client });
    await a.connect(child.address);
    for (let number = 0; number < 50; number++) await a.send("b", messageOf(1_000, number));
    await child.kill();
    await until(() => told.some(({ type }) => type === "disconnected"), "its end", 10_000);
    const codes = told.flatMap((event) => (event.type === "error" ? [event.error.code] : []));
    const { undelivered } = a.stats();
    const peers = a.peers();
    await a.close();
    return {
      lost: codes[0],
      told: codes.includes("ERR_ZAP_UNDELIVERED"),
      undelivered: undelivered > 0,
      peers,
    };
  },
};

export type DpdkCase = keyof typeof CASES;

if (import.meta.main) {
  const [name = "", ends = "{}"] = process.argv.slice(2);
  const outcome = await CASES[name as DpdkCase](JSON.parse(ends) as Ends);
  const { call } = await openShim("libzap_dpdk", (JSON.parse(ends) as Ends).server);
  process.stdout.write(`${JSON.stringify({ outcome, events, live: call.live() })}\n`);
}
