/**
 * Opens a transport, brings it into the state that is named, closes it, and ends by itself: without `process.exit`, so that whatever
 * is left over keeps it alive. Run by exit.test.ts. No limit is small enough to help.
 */
import { pick } from "../../lib/transport/index.ts";
import { helloOf } from "../support/messages.ts";
import { RawListener, RawSocket } from "../support/raw.ts";
import { until } from "../support/wait.ts";

const HOUR = 3_600_000;
const limits = {
  ...{ handshakeMillis: HOUR, sendMillis: HOUR, closeMillis: HOUR, frameMillis: HOUR, idleMillis: HOUR },
  ...{ keepaliveMillis: HOUR, reconnectMinMillis: HOUR, reconnectMaxMillis: HOUR },
};

const open = (peers: Record<string, string> = {}) =>
  pick("default", { nodeId: "node", listen: "127.0.0.1:0", limits, peers, onEvent: () => {} });

const STATES: Record<string, () => Promise<void>> = {
  async "nothing going on"() {
    const node = await open();
    await node.close();
  },

  // A peer of another make dialled while it was dialled: one of the two connections is spare, and a timer waits for it to go.
  async "a spare connection"() {
    using listener = new RawListener();
    const node = await open();
    const connecting = node.connect(listener.address);
    const dialled = await listener.socket();
    await dialled.frame();
    const inbound = await RawSocket.connect(node.addresses[0]!);
    await inbound.greet("go");
    dialled.write(helloOf("go"));
    await connecting;
    const closing = node.close();
    await Promise.all(
      [inbound, dialled].map((socket) => until(() => socket.ended || socket.closed, "the end")),
    );
    for (const socket of [inbound, dialled]) socket.terminate();
    await closing;
  },

  async "a connect that was told of another connection"() {
    using listener = new RawListener();
    const node = await open();
    const connecting = node.connect(listener.address).catch(() => {});
    const socket = await listener.socket();
    await socket.frame();
    socket.write(helloOf("ghost", 2));
    await socket.untilClosed();
    await node.close();
    await connecting;
  },

  async "a connect that was told of another connection and then aborted"() {
    using listener = new RawListener();
    const node = await open();
    const abort = new AbortController();
    const connecting = node.connect(listener.address, { signal: abort.signal }).catch(() => {});
    const socket = await listener.socket();
    await socket.frame();
    socket.write(helloOf("ghost", 2));
    await socket.untilClosed();
    abort.abort();
    await connecting;
    await node.close();
  },

  async "a connect that is not answered, and a peer held for its sake"() {
    using listener = new RawListener();
    const node = await open();
    const connecting = node.connect(listener.address).catch(() => {});
    await (await listener.socket()).frame();
    const guest = await RawSocket.connect(node.addresses[0]!);
    await guest.greet("guest", 1);
    const closing = node.close();
    await until(() => guest.ended || guest.closed, "the end");
    guest.terminate();
    await Promise.all([closing, connecting]);
  },

  async "a configured peer that is not there, and sends that wait for it"() {
    const spare = new RawListener();
    const { address } = spare;
    spare[Symbol.dispose]();
    const node = await open({ far: address });
    const sending = node.send("far", new Uint8Array(helloOf("x").subarray(4)));
    sending.catch(() => {});
    await Bun.sleep(20);
    await node.close();
  },
};

const [, , name = ""] = process.argv;
await STATES[name]!();
console.log("closed");
