/**
 * The receiving process: `bun bench/receive/receiver.ts MEMORY SIZE WARM_MILLIS RUN_MILLIS`, MEMORY being `default` or `slabs`. Prints
 * its address, then what it measured, as JSON lines.
 */
import { openReceiver } from "./open.ts";

const [memory = "default", ...numbers] = process.argv.slice(2);
const [size = 0, warmMillis = 0, runMillis = 0] = numbers.map(Number);

const transport = await openReceiver(memory);
console.log(JSON.stringify({ address: transport.addresses[0] }));

let messages = 0;
let wrong = 0;
let from = { at: 0, messages: 0, cpu: process.cpuUsage(), copied: 0, bytes: 0 };

function mark() {
  const { bytesCopied, bytesIn } = transport.stats();
  return { at: performance.now(), messages, cpu: process.cpuUsage(), copied: bytesCopied, bytes: bytesIn };
}

function report(): never {
  const to = mark();
  const millis = to.at - from.at;
  const count = to.messages - from.messages;
  const cpu = to.cpu.user + to.cpu.system - from.cpu.user - from.cpu.system;
  const result = {
    messagesPerSecond: (count / millis) * 1_000,
    megabytesPerSecond: ((count * size) / millis) * 1e-3,
    cpuNanosPerMessage: (cpu * 1_000) / count,
    copiedPerByte: (to.copied - from.copied) / (to.bytes - from.bytes),
    wrong,
  };
  console.log(JSON.stringify({ result }));
  process.exit(0);
}

for await (const envelope of transport) {
  if (messages === 0) {
    setTimeout(() => (from = mark()), warmMillis);
    setTimeout(report, warmMillis + runMillis);
  }
  messages++;
  // Touched where the verifier would begin.
  if (envelope.message.length !== size || envelope.message[0] !== 0x5a) wrong++;
  envelope.release();
}
