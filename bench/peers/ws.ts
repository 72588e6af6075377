/**
 * The module `ws`: binary messages over WebSocket, no compression. In Bun, `import "ws"` gives Bun's own implementation of that
 * interface, whether the npm package is installed or not; it is what a program gets, and so it is what is measured.
 */
import type { AddressInfo, Socket } from "node:net";
import { WebSocket, WebSocketServer } from "ws";
import type { Link, Next, Peer, Take } from "../peer.ts";

const MESSAGE_MAX = 64 * 1024 * 1024;
/** More than this in the sender's queue, and it waits. */
const QUEUE_BYTES = 1024 * 1024;

class WsLink implements Link {
  readonly #socket: WebSocket;

  constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  async flood(next: Next): Promise<void> {
    const socket = this.#socket;
    for (let message = next(); message !== null; message = next()) {
      const bytes = message;
      if (socket.bufferedAmount < QUEUE_BYTES) socket.send(bytes);
      else await new Promise<void>((resolve) => socket.send(bytes, () => resolve()));
    }
  }

  pingPong(next: Next, back: Take): Promise<void> {
    const socket = this.#socket;
    const { promise, resolve } = Promise.withResolvers<void>();
    const ask = (): void => {
      const message = next();
      if (message === null) resolve();
      else socket.send(message);
    };
    socket.on("message", (message) => {
      back(message as Buffer);
      ask();
    });
    ask();
    return promise;
  }
}

export const peer: Peer = {
  listen(take, echo) {
    const server = new WebSocketServer({
      host: "127.0.0.1",
      port: 0,
      perMessageDeflate: false,
      maxPayload: MESSAGE_MAX,
    });
    server.on("connection", (socket, request) => {
      (request.socket as Socket | undefined)?.setNoDelay(true);
      socket.on("message", (message) => {
        take(message as Buffer);
        if (echo) socket.send(message as Buffer);
      });
    });
    return new Promise((resolve) => {
      server.on("listening", () => resolve(`127.0.0.1:${(server.address() as AddressInfo).port}`));
    });
  },

  connect(address) {
    const socket = new WebSocket(`ws://${address}`, { perMessageDeflate: false, maxPayload: MESSAGE_MAX });
    return new Promise((resolve, reject) => {
      socket.once("open", () => resolve(new WsLink(socket)));
      socket.once("error", reject);
    });
  },
};
