/** A bare socket that speaks the wire by hand: for peers that misbehave, and for peers of other make. */
import type { Socket } from "bun";
import { frameOf, helloOf, joined, numberOf } from "./messages.ts";
import { until } from "./wait.ts";

type Tls = Bun.TLSOptions;

export interface RawOptions {
  readonly tls?: Tls;
}

export class RawSocket {
  /** Everything received that `frame` has not taken yet. */
  received: Uint8Array = new Uint8Array(0);
  opened = false;
  /** With TLS: the handshake is over, whatever came of it. What is written before is kept until then. */
  secured = true;
  /** The far end has half-closed. */
  ended = false;
  closed = false;
  error: Error | null = null;
  private socket: Socket<RawSocket> | null = null;
  private unsent: Uint8Array[] = [];

  static async connect(address: string, options: RawOptions = {}): Promise<RawSocket> {
    const raw = new RawSocket();
    raw.secured = options.tls === undefined;
    const common = {
      data: raw,
      socket: RawSocket.handlers,
      allowHalfOpen: true,
      ...(options.tls === undefined ? {} : { tls: options.tls }),
    };
    if (address.startsWith("unix:")) await Bun.connect<RawSocket>({ ...common, unix: address.slice(5) });
    else {
      const colon = address.lastIndexOf(":");
      const hostname = address.slice(0, colon).replaceAll(/[[\]]/g, "");
      await Bun.connect<RawSocket>({ ...common, hostname, port: Number(address.slice(colon + 1)) });
    }
    return raw;
  }

  static readonly handlers: Bun.SocketHandler<RawSocket> = {
    binaryType: "uint8array",
    open: (socket) => socket.data.adopt(socket),
    handshake: (socket) => {
      socket.data.secured = true;
      socket.data.flush();
    },
    data: (socket, chunk) => void (socket.data.received = joined(socket.data.received, chunk)),
    drain: (socket) => socket.data.flush(),
    end: (socket) => void (socket.data.ended = true),
    error: (socket, error) => void (socket.data.error ??= error),
    close: (socket, error) => {
      socket.data.error ??= error ?? null;
      socket.data.closed = true;
    },
    connectError: () => {},
  };

  adopt(socket: Socket<RawSocket>): void {
    this.socket = socket;
    this.opened = true;
    this.flush();
  }

  /** Sends bytes; what the kernel does not take goes out when it does. */
  write(...parts: readonly Uint8Array[]): void {
    this.unsent.push(...parts.filter((part) => part.length > 0));
    this.flush();
  }

  writeFrame(bytes: Uint8Array): void {
    this.write(frameOf(bytes));
  }

  private flush(): void {
    if (!this.secured) return;
    for (let next = this.unsent[0]; next !== undefined && this.socket !== null; next = this.unsent[0]) {
      const written = this.socket.write(next);
      if (written < 0) return;
      if (written < next.length) {
        this.unsent[0] = next.subarray(written);
        return;
      }
      this.unsent.shift();
    }
  }

  get unsentBytes(): number {
    return this.unsent.reduce((sum, part) => sum + part.length, 0);
  }

  /** The next frame without its length, as soon as it is there. */
  async frame(millis = 4_000): Promise<Uint8Array> {
    await until(() => this.whole() !== null || this.closed, "a frame at a bare socket", millis);
    const length = this.whole();
    if (length === null) throw new Error("the connection was closed, and no frame had come");
    const frame = this.received.slice(4, 4 + length);
    this.received = this.received.subarray(4 + length);
    return frame;
  }

  /** The next frame that is a message: no keepalive, no acknowledgement. */
  async message(millis = 4_000): Promise<Uint8Array> {
    for (;;) {
      const frame = await this.frame(millis);
      if (frame.length >= 16) return frame;
    }
  }

  /** The numbers of the messages among what came before the end. */
  async numbersToTheEnd(): Promise<number[]> {
    await this.untilClosed();
    const numbers: number[] = [];
    while (this.received.length > 0) {
      const frame = await this.frame();
      if (frame.length >= 16) numbers.push(numberOf(frame));
    }
    return numbers;
  }

  private whole(): number | null {
    if (this.received.length < 4) return null;
    const { buffer, byteOffset } = this.received;
    const length = new DataView(buffer, byteOffset, 4).getUint32(0, true);
    return this.received.length >= 4 + length ? length : null;
  }

  /** Says hello and takes the answer, which it returns. */
  async greet(nodeId: string, kind = 0): Promise<Uint8Array> {
    this.write(helloOf(nodeId, kind));
    return this.frame();
  }

  pause(): void {
    this.socket?.pause();
  }

  resume(): void {
    this.socket?.resume();
  }

  /** Half-closes. */
  shutdown(): void {
    this.socket?.shutdown();
  }

  terminate(): void {
    this.socket?.terminate();
  }

  async untilClosed(millis = 4_000): Promise<void> {
    await until(() => this.closed || this.ended, "the far end to hang up", millis);
  }
}

/** A listener whose every connection is a `RawSocket`: the far end of a dial. */
export class RawListener implements Disposable {
  readonly sockets: RawSocket[] = [];
  private readonly listener: Bun.TCPSocketListener<RawSocket>;

  constructor(options: RawOptions & { readonly port?: number } = {}) {
    const { sockets } = this;
    this.listener = Bun.listen<RawSocket>({
      hostname: "127.0.0.1",
      port: options.port ?? 0,
      allowHalfOpen: true,
      ...(options.tls === undefined ? {} : { tls: options.tls }),
      socket: {
        ...RawSocket.handlers,
        open: (socket) => {
          const raw = new RawSocket();
          raw.secured = options.tls === undefined;
          socket.data = raw;
          raw.adopt(socket);
          sockets.push(raw);
        },
      },
    });
  }

  get port(): number {
    return this.listener.port;
  }

  get address(): string {
    return `127.0.0.1:${this.listener.port}`;
  }

  async socket(index = 0): Promise<RawSocket> {
    await until(() => this.sockets.length > index, `connection ${index} at a bare listener`);
    return this.sockets[index] as RawSocket;
  }

  [Symbol.dispose](): void {
    for (const socket of this.sockets) socket.terminate();
    this.listener.stop(true);
  }
}
