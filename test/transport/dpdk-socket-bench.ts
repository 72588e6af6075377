/** What the scenarios of dpdk-socket.script.ts open: the transport on its end of the veth pair, and sockets on the kernel's. */
import { pick, type TransportEvent, type TransportOptions } from "../../lib/transport/index.ts";
import { DatagramPeer, type PeerOptions } from "../support/datagram-peer.ts";
import type { DatagramLink } from "../support/datagram-link.ts";
import { Node } from "../support/nodes.ts";

const ENV = {
  ...process.env,
  ZAP_TRANSPORT_QUIET: "1",
  ZAP_DPDK_VDEV: "net_af_packet0,iface=zapa,blocksz=65536,framesz=2048,framecnt=4096,qdisc_bypass=1",
  ZAP_DPDK_HUGEPAGES: "0",
  ZAP_DPDK_ADDRESS: "10.9.0.1/24,fd00::1/64",
  ZAP_DPDK_IDLE: "yield",
  ZAP_DPDK_REGION_BYTES: `${96 << 20}`,
};

const PORT = 7_000;
const HERE = { 4: "10.9.0.2", 6: "fd00::2" } as const;
const THERE = { 4: { host: "10.9.0.1", port: PORT }, 6: { host: "fd00::1", port: PORT } } as const;
export type Family = keyof typeof HERE;

/** What one scenario opens; all of it is closed at its end. */
export class Bench implements AsyncDisposable {
  readonly there = THERE;
  private readonly nodes: Node[] = [];
  private readonly sockets: DatagramPeer[] = [];

  /** The transport. */
  async node(options: TransportOptions = {}): Promise<Node> {
    const events: TransportEvent[] = [];
    const all = {
      nodeId: "node",
      listen: `[::]:${PORT}`,
      ...options,
      onEvent: (e: TransportEvent) => void events.push(e),
    };
    const node = new Node(await pick("dpdk", { strict: true, ...all, env: ENV }), events);
    this.nodes.push(node);
    return node;
  }

  /** A node over an ordinary socket. */
  async socket(id: string, family: Family = 4, options: Partial<PeerOptions> = {}): Promise<DatagramPeer> {
    const socket = await DatagramPeer.open(id, { hostname: HERE[family], ...options });
    this.sockets.push(socket);
    return socket;
  }

  /** Both, and a flow that the socket dialled. */
  async pair(
    options: TransportOptions = {},
    family: Family = 4,
  ): Promise<{ node: Node; socket: DatagramPeer; link: DatagramLink }> {
    const node = await this.node(options);
    const socket = await this.socket("socket", family);
    const link = await socket.dial(THERE[family]);
    await node.untilPeers(1);
    return { node, socket, link };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const faults = this.sockets.flatMap((socket) => socket.faults);
    for (const node of this.nodes) await node.close();
    for (const socket of this.sockets) socket[Symbol.dispose]();
    if (faults.length > 0) throw new Error(`at the socket: ${faults.join("; ")}`);
  }
}
