#!/usr/bin/env bun
/**
 * `bun run demo`: two processes send each other messages of mixed sizes over the transport that `pick()` opens here, and
 * every one is checked. Works the same when it is compiled: `bun build --compile scripts/demo.ts --outfile demo`.
 */
import { parseArgs } from "node:util";
import { runDemo } from "./demo/conductor.ts";
import { runNode } from "./demo/node.ts";

const USAGE = `Usage: bun run demo [--messages N] [--seed N]

Starts two processes on loopback. Each sends the other N messages of 64 bytes to
4 MiB, and checks order, size and SHA-256 of each that comes. The last line is

  delivered N messages, B bytes, 0 lost over NAME

  --messages N  how many each way; default 1000
  --seed N      for other sizes and contents; default 1
  -h, --help    print this

ZAP_TRANSPORT names the preferred transport. With dpdk, and no device in
ZAP_DPDK_VDEV or ZAP_DPDK_PCI, the two get software devices of their own; with
gpudirect, and none in ZAP_GPUDIRECT_DEVICE, the first two RDMA devices.
Exit status: 0 everything arrived; 1 something was lost; 2 a wrong option.
`;

async function main(argv: readonly string[]): Promise<number> {
  let wishes;
  try {
    wishes = parse(argv);
  } catch (error) {
    process.stderr.write(`demo: ${error instanceof Error ? error.message : String(error)}\n\n${USAGE}`);
    return 2;
  }
  if (wishes.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  return wishes.node === undefined ? runDemo(wishes) : runNode(wishes.node, wishes);
}

function parse(argv: readonly string[]) {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      messages: { type: "string", default: "1000" },
      seed: { type: "string", default: "1" },
      help: { type: "boolean", short: "h", default: false },
      // How the demo starts its own two processes.
      node: { type: "string" },
      listen: { type: "string", default: "127.0.0.1:0" },
    },
  });
  const messages = wholeNumber("--messages", values.messages, 1, 100_000);
  const seed = wholeNumber("--seed", values.seed, 0, 0xffff_ffff);
  return { messages, seed, listen: values.listen, help: values.help, node: values.node };
}

function wholeNumber(option: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  throw new Error(`${option}: an integer from ${min} to ${max} is needed, got ${JSON.stringify(text)}`);
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
