/** What the scenarios share: a node over `gpudirect` on one of the guest's devices, a far side in a process of its own, and patience. */
import { join } from "node:path";
import { pick, type Transport, type TransportEvent } from "../../../lib/index.ts";
import { isMessage, messageOf } from "../../support/messages.ts";

export const MIB: number = 2 ** 20;
export const FAR_ADDRESS = "127.0.0.1:7001";
export const DEVICES = [process.env["GUEST_DEVICE_0"] ?? "", process.env["GUEST_DEVICE_1"] ?? ""] as const;
const NETDEVS = [process.env["GUEST_NETDEV_0"] ?? "", process.env["GUEST_NETDEV_1"] ?? ""] as const;
const LIMITS = { frameBytes: 16 * MIB, sendMillis: 60_000, reconnectMaxMillis: 500 };

/** Of this process, for the last words of a scenario that hangs. */
export const opened: Transport[] = [];
export const children: Bun.Subprocess[] = [];

/** Nothing goes wrong where nobody breaks anything. */
function tell(event: TransportEvent): void {
  if (event.type === "error") console.error(event.error.message);
}

export async function open(
  nodeId: string,
  device: string,
  more: Parameters<typeof pick>[1] = {},
): Promise<Transport> {
  const env = { ...process.env, ZAP_GPUDIRECT_DEVICE: device, ZAP_TRANSPORT_QUIET: "1" };
  const given = { nodeId, env, strict: true, limits: LIMITS, onEvent: tell, ...more };
  const transport = await pick("gpudirect", given);
  opened.push(transport);
  return transport;
}

/** Starts `role` (see far.ts) as the node `name` on the second device, and waits until it is open. */
export async function startFar(role: string, name: string, address: string): Promise<Bun.Subprocess> {
  const script = join(import.meta.dir, "far.ts");
  const words = [process.execPath, script, role, name, DEVICES[1], address];
  const child = Bun.spawn(words, { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  children.push(child);
  const { value } = await child.stdout.getReader().read();
  if (value === undefined) throw new Error(`${name} did not open`);
  return child;
}

export function check(truth: boolean, what: string): void {
  if (!truth) throw new Error(what);
}

export async function until(condition: () => boolean, what: string, millis = 60_000): Promise<void> {
  const deadline = performance.now() + millis;
  while (!condition()) {
    check(performance.now() < deadline, `waited in vain for ${what}`);
    await Bun.sleep(10);
  }
}

/** Sends a message and takes its echo. */
export async function round(
  transport: Transport,
  peer: string,
  bytes: number,
  number: number,
): Promise<void> {
  await transport.send(peer, messageOf(bytes, number));
  const envelope = await transport.recv();
  const { message } = envelope;
  check(envelope.peer === peer, `an echo of ${envelope.peer}`);
  check(message.length === bytes && isMessage(message, number), `${bytes} bytes came back damaged`);
  envelope.release();
}

export async function sendAll(transport: Transport, peer: string, lengths: readonly number[]): Promise<void> {
  for (const [number, bytes] of lengths.entries()) await transport.send(peer, messageOf(bytes, number));
}

/** Takes messages of these lengths, in this order, each as it was sent. */
export async function takeAll(transport: Transport, lengths: readonly number[]): Promise<void> {
  for (const [number, bytes] of lengths.entries()) {
    const envelope = await transport.recv();
    const { message } = envelope;
    check(message.length === bytes && isMessage(message, number), `message ${number} of ${bytes} bytes`);
    envelope.release();
  }
}

/** Nothing was copied, refused or lost, and everything is back where it belongs. */
export async function checkClean(transport: Transport): Promise<void> {
  await until(() => transport.stats().rdma?.heldBytes === 0, "all memory to come back");
  await until(() => transport.stats().queuedOutMessages === 0, "all to be told of");
  const { rdma, undelivered } = transport.stats();
  check(rdma !== undefined && rdma.failures === 0 && rdma.rnrExceeded === 0, "no completion fails");
  check(undelivered === 0, "everything was delivered");
}

export function run(...words: readonly string[]): string {
  const { success, stdout, stderr } = Bun.spawnSync([...words]);
  check(success, `${words.join(" ")}: ${stderr.toString()}`);
  return stdout.toString();
}

/** From now on the link loses this share of all packets, both ways, and takes its time. */
export function spoilLink(percent: number, delayMillis: number): void {
  const module = "/modules/sch_netem.ko";
  if (!run("lsmod").includes("sch_netem")) run("insmod", module);
  for (const device of NETDEVS) {
    const words = ["netem", "delay", `${delayMillis}ms`, "loss", `${percent}%`, "limit", "100000"];
    run("tc", "qdisc", "add", "dev", device, "root", ...words);
  }
}

/** Mends it, and tells how many packets it has lost. */
export function mendLink(): number {
  let lost = 0;
  for (const device of NETDEVS) {
    lost += Number(/dropped (\d+)/.exec(run("tc", "-s", "qdisc", "show", "dev", device))?.[1] ?? 0);
    run("tc", "qdisc", "del", "dev", device, "root");
  }
  return lost;
}

export function setLink(state: "up" | "down"): void {
  run("ip", "link", "set", NETDEVS[1], state);
}
