/**
 * The far side, in a process of its own: `ROLE NAME DEVICE ADDRESS`. It says `open` once it listens. `echo` sends back what it gets; `many` and
 * `few` swap the messages of streams.ts with whoever connects, and end with 0 where all were right.
 */
import type { Transport } from "../../../lib/index.ts";
import { checkClean, open, sendAll, takeAll, until } from "./kit.ts";
import { FEW, MANY } from "./streams.ts";

async function echo(transport: Transport): Promise<void> {
  for await (const envelope of transport) {
    // Where the other side is gone, so is its wish to hear of this.
    await transport.send(envelope.peer, envelope.message).catch(() => {});
    envelope.release();
  }
}

async function swap(transport: Transport, lengths: readonly number[]): Promise<void> {
  await until(() => transport.peers().length > 0, "somebody to connect");
  const [peer = ""] = transport.peers();
  await Promise.all([sendAll(transport, peer, lengths.toReversed()), takeAll(transport, lengths)]);
  await checkClean(transport);
}

const [role = "", name = "", device = "", listen = ""] = process.argv.slice(2);
const transport = await open(name, device, { listen, ...(role === "echo" ? { onEvent: () => {} } : {}) });
console.log("open");
process.on("SIGUSR1", () => console.error(`${name}: ${JSON.stringify(transport.stats())}`));
if (role === "echo") await echo(transport);
else {
  await swap(transport, role === "many" ? MANY : FEW);
  await transport.close();
  process.exit(0);
}
