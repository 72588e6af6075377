/** A TCP relay that holds every chunk for a random while, so that two dials can cross on the way in any order. */
import type { Socket } from "bun";
import { diceOf } from "./properties.ts";

interface End {
  readonly link: Link;
  other: End | null;
  socket: Socket<End> | null;
  /** What is still on its way to the far end, in order, each held for its own delay; nothing overtakes. */
  underWay: Promise<void>;
  unsent: Uint8Array[];
  finWanted: boolean;
}

interface Link {
  readonly ends: Set<End>;
  readonly delay: () => number;
}

export class SlowLink implements Disposable {
  private readonly listener: Bun.TCPSocketListener<End>;
  private readonly link: Link;
  private readonly target = Promise.withResolvers<number>();

  /** Holds every chunk for up to `millisMax`. */
  constructor(millisMax: number, seed: number) {
    const dice = diceOf(seed);
    const link: Link = { ends: new Set(), delay: () => dice() * millisMax };
    this.link = link;
    this.listener = Bun.listen<End>({
      hostname: "127.0.0.1",
      port: 0,
      allowHalfOpen: true,
      socket: {
        ...handlers,
        open: (socket) => {
          const near = endOf(link);
          const far = endOf(link);
          near.other = far;
          far.other = near;
          near.socket = socket;
          socket.data = near;
          const options = { hostname: "127.0.0.1", data: far, socket: handlers, allowHalfOpen: true };
          this.target.promise.then((port) => Bun.connect<End>({ ...options, port })).catch(() => close(near));
        },
      },
    });
  }

  /** Where connections go on to, "127.0.0.1:port"; those that came before this is known wait. */
  leadTo(target: string): void {
    this.target.resolve(Number(target.split(":")[1]));
  }

  get address(): string {
    return `127.0.0.1:${this.listener.port}`;
  }

  [Symbol.dispose](): void {
    this.listener.stop(true);
    for (const end of this.link.ends) end.socket?.terminate();
  }
}

function endOf(link: Link): End {
  const end: End = {
    link,
    other: null,
    socket: null,
    underWay: Promise.resolve(),
    unsent: [],
    finWanted: false,
  };
  link.ends.add(end);
  return end;
}

const handlers: Bun.SocketHandler<End> = {
  binaryType: "uint8array",
  open: (socket) => {
    socket.data.socket = socket;
    flush(socket.data);
  },
  data: (socket, chunk) => {
    later(socket.data, (other) => {
      other.unsent.push(chunk);
      flush(other);
    });
  },
  drain: (socket) => flush(socket.data),
  end: (socket) => {
    later(socket.data, (other) => {
      other.finWanted = true;
      flush(other);
    });
  },
  close: (socket) => later(socket.data, close),
  error: () => {},
  connectError: () => {},
};

/** Does something to the far end when this end's next delay is over. */
function later(end: End, act: (other: End) => void): void {
  const { other } = end;
  if (other === null) return;
  end.underWay = end.underWay.then(() => Bun.sleep(end.link.delay())).then(() => act(other));
}

function close(end: End): void {
  end.link.ends.delete(end);
  end.socket?.terminate();
}

function flush(end: End): void {
  const { socket } = end;
  if (socket === null) return;
  for (let next = end.unsent[0]; next !== undefined; next = end.unsent[0]) {
    const written = socket.write(next);
    if (written < 0) return;
    if (written < next.length) {
      end.unsent[0] = next.subarray(written);
      return;
    }
    end.unsent.shift();
  }
  if (end.finWanted) socket.shutdown();
}
