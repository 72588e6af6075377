/**
 * node:net as Bun provides it, with the framing of `bun-bare` and small frames gathered by hand into one large write:
 * faster there than `cork` and `uncork`.
 */
import { type AddressInfo, type Socket, connect, createServer } from "node:net";
import { FrameReader, HEADER_BYTES, putFrame } from "../frames.ts";
import type { Link, Next, Peer, Take } from "../peer.ts";

const BUFFER_BYTES = 256 * 1024;

function writeMessage(socket: Socket, message: Uint8Array): boolean {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + message.length);
  putFrame(frame, 0, message);
  return socket.write(frame);
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once("drain", resolve));
}

class NetLink implements Link {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  async flood(next: Next): Promise<void> {
    const socket = this.#socket;
    let buffer = Buffer.allocUnsafe(BUFFER_BYTES);
    let fill = 0;
    for (let message = next(); message !== null; message = next()) {
      if (fill + HEADER_BYTES + message.length > BUFFER_BYTES) {
        if (!socket.write(buffer.subarray(0, fill))) await drained(socket);
        // `write` keeps the bytes until the kernel has them.
        buffer = Buffer.allocUnsafe(BUFFER_BYTES);
        fill = 0;
      }
      if (HEADER_BYTES + message.length <= BUFFER_BYTES) fill = putFrame(buffer, fill, message);
      else if (!writeMessage(socket, message)) await drained(socket);
    }
    if (!socket.write(buffer.subarray(0, fill))) await drained(socket);
  }

  pingPong(next: Next, back: Take): Promise<void> {
    const socket = this.#socket;
    const { promise, resolve } = Promise.withResolvers<void>();
    const ask = (): void => {
      const message = next();
      if (message === null) resolve();
      else writeMessage(socket, message);
    };
    const reader = new FrameReader((message) => {
      back(message);
      ask();
    });
    socket.on("data", (chunk) => reader.push(chunk as Buffer));
    ask();
    return promise;
  }
}

export const peer: Peer = {
  listen(take, echo) {
    const server = createServer({ noDelay: true }, (socket) => {
      const reader = new FrameReader((message) => {
        take(message);
        if (echo) writeMessage(socket, message);
      });
      socket.on("data", (chunk) => reader.push(chunk as Buffer));
    });
    return new Promise((resolve) => {
      server.listen(0, "127.0.0.1", () => resolve(`127.0.0.1:${(server.address() as AddressInfo).port}`));
    });
  },

  connect(address) {
    const [host = "", port] = address.split(":");
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port: Number(port), noDelay: true }, () => resolve(new NetLink(socket)));
      socket.once("error", reject);
    });
  },
};
