/** The npm package ws: binary messages over WebSocket, no compression. */
import { createRequire } from "node:module";
import type { AddressInfo, Socket } from "node:net";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import type { WebSocket as WebSocketType } from "ws";
import type { Link, Next, Peer, Take } from "../peer.ts";

const ws =
  process.env["WSREAL"] === "1"
    ? ((await import(
        pathToFileURL(join(dirname(createRequire(import.meta.url).resolve("ws/package.json")), "wrapper.mjs")).href
      )) as typeof import("ws"))
    : await import("ws");
if (process.env["WSREAL"]) console.error(Object.keys(ws), (ws as any).WebSocket?.toString().slice(0, 60));

/** More than this in the sender's queue, and it waits. */
const QUEUE_BYTES = 1024 * 1024;

class WsLink implements Link {
  readonly #socket: WebSocketType;

  constructor(socket: WebSocketType) {
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
    const server = new ws.WebSocketServer({
      host: "127.0.0.1",
      port: 0,
      perMessageDeflate: false,
      maxPayload: 64 * 1024 * 1024,
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
    const socket = new ws.WebSocket(`ws://${address}`, { perMessageDeflate: false, maxPayload: 64 * 1024 * 1024 });
    return new Promise((resolve, reject) => {
      socket.once("open", () => resolve(new WsLink(socket)));
      socket.once("error", reject);
    });
  },
};
