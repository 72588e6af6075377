/** A TCP relay with a gate on the way back: what the target says is held until the gate opens; the way there is always open. */
import { RawListener, RawSocket } from "../support/raw.ts";

export class GatedLink implements Disposable {
  private readonly listener = new RawListener();
  private readonly far: RawSocket[] = [];
  private readonly timer: Timer;
  private open = false;

  /** Leads every connection to `target`, "127.0.0.1:port". */
  constructor(target: string) {
    const dialled = new Set<RawSocket>();
    const pairs: [RawSocket, RawSocket, { toFar: boolean; toNear: boolean }][] = [];
    this.timer = setInterval(() => {
      for (const near of this.listener.sockets) {
        if (dialled.has(near)) continue;
        dialled.add(near);
        void RawSocket.connect(target).then((far) => {
          this.far.push(far);
          pairs.push([near, far, { toFar: false, toNear: false }]);
        });
      }
      for (const [near, far, ended] of pairs) {
        ended.toFar = pass(near, far, ended.toFar);
        if (this.open) ended.toNear = pass(far, near, ended.toNear);
      }
    }, 1);
  }

  get address(): string {
    return this.listener.address;
  }

  /** Bytes that wait at the gate. */
  get held(): number {
    return this.far.reduce((sum, socket) => sum + socket.received.length, 0);
  }

  /** Both ends of everything that came through have hung up. */
  get over(): boolean {
    const sockets = [...this.listener.sockets, ...this.far];
    return this.far.length > 0 && sockets.every((socket) => socket.closed);
  }

  openGate(): void {
    this.open = true;
  }

  [Symbol.dispose](): void {
    clearInterval(this.timer);
    for (const socket of this.far) socket.terminate();
    this.listener[Symbol.dispose]();
  }
}

/** Moves on what has come, and the end after it; returns whether that was passed on. */
function pass(from: RawSocket, to: RawSocket, over: boolean): boolean {
  if (from.received.length > 0) {
    to.write(from.received);
    from.received = new Uint8Array(0);
  }
  if (over || to.unsentBytes > 0) return over;
  // An end that comes after our own shows as a close alone.
  if (from.error !== null) to.terminate();
  else if (from.ended || from.closed) to.shutdown();
  return from.ended || from.closed;
}
