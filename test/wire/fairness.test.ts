import { describe, expect, test } from "bun:test";
import { pick } from "../../lib/transport/index.ts";
import { Child } from "../support/child.ts";
import { messageOf } from "../support/messages.ts";

/** Sends until `turns` immediates have run; fails where that takes more than `most` messages. */
async function sendUntilTurns(turns: number, most: number, next: () => Promise<void>): Promise<number> {
  let seen = 0;
  const count = (): void => {
    seen++;
    if (seen < turns) setImmediate(count);
  };
  setImmediate(count);
  let messages = 0;
  while (seen < turns) {
    if (++messages > most) throw new Error(`${seen} turns of the event loop within ${most} messages`);
    await next();
  }
  return messages;
}

describe("a loop that only sends to a peer that keeps up", () => {
  for (const bytes of [1_000, 20_000, 200_000]) {
    test(`lets the event loop run (${bytes} bytes)`, async () => {
      const options = { nodeId: "sink", listen: "127.0.0.1:0" };
      await using sink = await Child.start({ role: "sink", options, count: 1e9, bytes });
      await using transport = await pick("default", { env: { ZAP_TRANSPORT_QUIET: "1" }, onEvent: () => {} });
      const peer = await transport.connect(sink.address);
      const message = messageOf(bytes, 0);
      const view = new DataView(message.buffer);
      let number = 0;
      const next = (): Promise<void> => {
        view.setUint32(16, number++, true);
        return transport.send(peer, message);
      };
      // About 4 MiB a turn are let through; ten times that would be starvation.
      const most = 10 * Math.ceil((40 * 1024 * 1024) / bytes);
      const sent = await sendUntilTurns(10, most, next);
      expect(sent).toBeLessThanOrEqual(most);
      await sink.kill();
    }, 20_000);
  }
});
