/**
 * The library's `dpdk` transport over net_memif. The environment: ZAP_BENCH_FOLDER, where the device's sockets are made, and
 * ZAP_BENCH_IDLE. An address is the path of a socket and the node's own, with a space between them.
 */
import { join } from "node:path";
import { pick, type TransportOptions } from "../../lib/index.ts";
import { linked, onEvent, served } from "./zap.ts";
import type { Peer } from "../peer.ts";

const FOLDER = process.env["ZAP_BENCH_FOLDER"] ?? "/tmp";

function open(role: "server" | "client", socket: string, options: TransportOptions) {
  const env = {
    ...process.env,
    ZAP_DPDK_VDEV: `net_memif0,role=${role},id=0,socket=${socket},socket-abstract=no`,
    ZAP_DPDK_ADDRESS: role === "server" ? "10.99.0.1/24" : "10.99.0.2/24",
    ZAP_DPDK_IDLE: process.env["ZAP_BENCH_IDLE"] ?? "sleep",
    ZAP_DPDK_HUGEPAGES: "0",
  };
  return pick("dpdk", { ...options, strict: true, env, onEvent });
}

export const peer: Peer = {
  async listen(take, echo) {
    const socket = join(FOLDER, `${process.pid}`);
    const transport = await open("server", socket, { nodeId: "bench-receiver", listen: "10.99.0.1:0" });
    served(transport, take, echo);
    return `${socket} ${transport.addresses[0]}`;
  },
  async connect(address) {
    const [socket = "", node = ""] = address.split(" ");
    const transport = await open("client", socket, { nodeId: "bench-sender" });
    return linked(transport, await transport.connect(node));
  },
};
