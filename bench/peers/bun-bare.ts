/**
 * Bare Bun sockets with the framing done by hand, as well as one reasonably can: the yardstick. No handshake, no limits, no
 * queue, one connection.
 */
import type { Socket } from "bun";
import { FrameReader, HEADER_BYTES, putFrame, putHeader } from "../frames.ts";
import type { Link, Next, Peer, Take } from "../peer.ts";

const BUFFER_BYTES = 256 * 1024;

/** One connection: what arrives goes to `take`; `write` finishes partial writes on `drain`. */
class Connection {
  take: Take = () => {};
  #drained: (() => void) | null = null;
  readonly #socket: Socket<Connection>;
  readonly #reader = new FrameReader((message) => this.take(message));
  #single = new Uint8Array(64 * 1024);

  constructor(socket: Socket<Connection>) {
    this.#socket = socket;
    socket.setNoDelay(true);
  }

  arrived(chunk: Uint8Array): void {
    this.#reader.push(chunk);
  }

  drained(): void {
    const go = this.#drained;
    this.#drained = null;
    go?.();
  }

  /** Returns null when all was written at once, else a promise; `bytes` must not change before it resolves. */
  write(bytes: Uint8Array): Promise<void> | null {
    const written = this.#socket.write(bytes);
    return written === bytes.length ? null : this.#rest(bytes, Math.max(0, written));
  }

  /** Frames one message and writes it at once. */
  writeMessage(message: Uint8Array): Promise<void> | null {
    const length = HEADER_BYTES + message.length;
    if (this.#single.length < length) this.#single = new Uint8Array(length);
    putFrame(this.#single, 0, message);
    return this.write(this.#single.subarray(0, length));
  }

  async #rest(bytes: Uint8Array, at: number): Promise<void> {
    while (at < bytes.length) {
      await new Promise<void>((resolve) => (this.#drained = resolve));
      at += Math.max(0, this.#socket.write(bytes.subarray(at)));
    }
  }
}

class BareLink implements Link {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async flood(next: Next): Promise<void> {
    const connection = this.#connection;
    const buffer = new Uint8Array(BUFFER_BYTES);
    let fill = 0;
    for (let message = next(); message !== null; message = next()) {
      if (fill + HEADER_BYTES + message.length > BUFFER_BYTES) {
        await connection.write(buffer.subarray(0, fill));
        fill = 0;
      }
      if (HEADER_BYTES + message.length <= BUFFER_BYTES) {
        fill = putFrame(buffer, fill, message);
        continue;
      }
      // Copied through the buffer as well: a small write of its own for the header costs more than the copy.
      putHeader(buffer, 0, message.length);
      fill = HEADER_BYTES;
      for (let at = 0; at < message.length;) {
        const part = message.subarray(at, at + BUFFER_BYTES - fill);
        buffer.set(part, fill);
        fill += part.length;
        at += part.length;
        if (fill < BUFFER_BYTES) break;
        await connection.write(buffer);
        fill = 0;
      }
    }
    await connection.write(buffer.subarray(0, fill));
  }

  pingPong(next: Next, back: Take): Promise<void> {
    const connection = this.#connection;
    const { promise, resolve } = Promise.withResolvers<void>();
    const ask = (): void => {
      const message = next();
      if (message === null) resolve();
      else connection.writeMessage(message);
    };
    connection.take = (message) => {
      back(message);
      ask();
    };
    ask();
    return promise;
  }
}

const handlers = {
  binaryType: "uint8array",
  data: (socket: Socket<Connection>, chunk: Uint8Array) => socket.data.arrived(chunk),
  drain: (socket: Socket<Connection>) => socket.data.drained(),
  error: (_socket: Socket<Connection>, error: Error) => {
    throw error;
  },
} as const;

export const peer: Peer = {
  async listen(take, echo) {
    const listener = Bun.listen<Connection>({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        ...handlers,
        open(socket) {
          const connection = new Connection(socket);
          connection.take = echo
            ? (message) => {
                take(message);
                connection.writeMessage(message);
              }
            : take;
          socket.data = connection;
        },
      },
    });
    return `127.0.0.1:${listener.port}`;
  },

  async connect(address) {
    const [hostname = "", port] = address.split(":");
    const { promise, resolve } = Promise.withResolvers<Link>();
    await Bun.connect<Connection>({
      hostname,
      port: Number(port),
      socket: {
        ...handlers,
        open(socket) {
          socket.data = new Connection(socket);
          resolve(new BareLink(socket.data));
        },
      },
    });
    return promise;
  },
};
