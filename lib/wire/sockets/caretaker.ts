/** Everything that depends on time: deadlines, signs of life, and peers to be dialled again. */
import { ConnectionLostError, HandshakeError, TimeoutError } from "../../errors/index.ts";
import type { PeerBook } from "./book.ts";
import type { Connection } from "./connection.ts";
import type { Dialler } from "./dialler.ts";
import type { Hub } from "./hub.ts";

/** Between two rounds, milliseconds; limits below twice the longer one are looked at more often. */
const PERIOD_MILLIS_MIN = 5;
const PERIOD_MILLIS_MAX = 100;

export class Caretaker {
  private readonly hub: Hub;
  private readonly book: PeerBook;
  private readonly dialler: Dialler;
  private readonly timer: Timer;

  constructor(hub: Hub, book: PeerBook, dialler: Dialler) {
    this.hub = hub;
    this.book = book;
    this.dialler = dialler;
    const shortest = Math.min(
      ...Object.entries(hub.limits).map(([name, value]) => (name.endsWith("Millis") ? value : Infinity)),
    );
    const period = Math.max(PERIOD_MILLIS_MIN, Math.min(PERIOD_MILLIS_MAX, shortest / 2));
    this.timer = setInterval(() => this.round(), period);
  }

  stop(): void {
    clearInterval(this.timer);
  }

  round(): void {
    const now = performance.now();
    for (const connection of [...this.hub.connections]) this.check(connection, now);
    for (const peer of this.book.all()) {
      peer.expire(now);
      this.dialler.keepUp(peer, now);
      this.book.forget(peer);
    }
  }

  private check(connection: Connection, now: number): void {
    const { limits } = this.hub;
    const { state, address } = connection;
    if (connection.socket === null) return;
    if (state === "securing" || state === "greeting") {
      if (now - connection.bornAt < limits.handshakeMillis) return;
      const text = `${address} did not finish the handshake within ${limits.handshakeMillis} ms (limits.handshakeMillis)`;
      connection.fail(new HandshakeError(text));
    } else if (state === "retiring") {
      if (now - connection.retiredAt < limits.closeMillis) return;
      const text = `${address} did not hang up within ${limits.closeMillis} ms (limits.closeMillis)`;
      connection.fail(new TimeoutError(text));
    } else this.checkOpen(connection, now);
  }

  private checkOpen(connection: Connection, now: number): void {
    const { limits } = this.hub;
    const silentMax = connection.kin ? 3 * limits.keepaliveMillis : limits.idleMillis;
    if (connection.silence(now) >= silentMax) {
      connection.fail(new ConnectionLostError(`silent for ${silentMax} ms`));
    } else if (connection.frameAge(now) >= limits.frameMillis) {
      const text = `a frame was not complete after ${limits.frameMillis} ms (limits.frameMillis)`;
      connection.fail(new ConnectionLostError(text));
    } else {
      connection.acknowledge();
      connection.nextLease();
      if (now - connection.wroteAt >= limits.keepaliveMillis) connection.keepAlive();
    }
  }
}
