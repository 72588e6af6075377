/**
 * One scenario of dpdk-socket.test.ts, in a network namespace of its own (`unshare -n`), as root: the transport over `net_af_packet` on one
 * end of a veth pair, and on the other the kernel with an ordinary UDP socket. Words: the scenario's name. Says `ok` at the end.
 */
import { SCENARIOS } from "./dpdk-socket-scenarios.ts";

const SETUP = `set -e
ip link add zapa type veth peer name zapb
ip addr add 10.9.0.2/24 dev zapb
ip -6 addr add fd00::2/64 dev zapb nodad
ip link set zapa addrgenmode none
ip link set lo up
ip link set zapa up
ip link set zapb up
ethtool -K zapb tx off gso off >/dev/null`;

const setup = Bun.spawnSync(["sh", "-c", SETUP], {
  env: { ...process.env, PATH: `${process.env["PATH"]}:/usr/sbin:/sbin` },
});
if (!setup.success) throw new Error(`no veth pair: ${setup.stderr.toString()}`);
const scenario = SCENARIOS[process.argv[2] ?? ""];
if (scenario === undefined) throw new Error("which scenario?");
await scenario();
console.log("ok");
