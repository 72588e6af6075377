/** Everything that depends on time: deadlines, signs of life, and peers to be dialled again. */
import { ConnectionLostError, HandshakeError, TimeoutError } from "../../errors/index.ts";
import type { PeerBook } from "../common/book.ts";
import type { Connection } from "./connection.ts";
import type { Dialler } from "./dialler.ts";
import type { Greeter } from "./greeter.ts";
import type { Hub } from "./hub.ts";
import type { Peer } from "./peer.ts";

/** Between two rounds, milliseconds; limits below twice the longer one are looked at more often. */
const PERIOD_MILLIS_MIN = 5;
const PERIOD_MILLIS_MAX = 100;

export class Caretaker {
  private readonly hub: Hub;
  private readonly book: PeerBook<Peer>;
  private readonly dialler: Dialler;
  private readonly greeter: Greeter;
  private readonly period: number;
  private readonly timer: Timer;
  private lastRoundAt = performance.now();

  constructor(hub: Hub, book: PeerBook<Peer>, dialler: Dialler, greeter: Greeter) {
    this.greeter = greeter;
    this.hub = hub;
    this.book = book;
    this.dialler = dialler;
    const shortest = Math.min(
      ...Object.entries(hub.limits).map(([name, value]) => (name.endsWith("Millis") ? value : Infinity)),
    );
    this.period = Math.max(PERIOD_MILLIS_MIN, Math.min(PERIOD_MILLIS_MAX, shortest / 2));
    this.timer = setInterval(() => this.round(), this.period);
  }

  stop(): void {
    clearInterval(this.timer);
  }

  round(): void {
    const now = performance.now();
    const stoodStill = now - this.lastRoundAt - this.period;
    this.lastRoundAt = now;
    // The whole process did nothing (a long calculation, a suspended machine): what came meanwhile has not been read yet, so
    // nobody can be blamed for silence.
    if (stoodStill > this.period)
      for (const connection of this.hub.connections) connection.excuse(stoodStill);
    this.dialler.expire(now);
    for (const connection of [...this.hub.connections]) this.check(connection, now);
    for (const peer of this.book.all()) {
      peer.expire(now);
      this.dialler.keepUp(peer, now);
      this.book.forget(peer);
    }
    this.book.trim();
    this.greeter.endHolds(now);
  }

  private check(connection: Connection, now: number): void {
    const { limits } = this.hub;
    const { state, address } = connection;
    if (state === "securing" || state === "greeting") {
      if (now - connection.bornAt < limits.handshakeMillis) return;
      const text = `${address} did not finish the handshake within ${limits.handshakeMillis} ms (limits.handshakeMillis)`;
      connection.fail(new HandshakeError(text));
    } else if (state === "retiring") {
      // A connection that still brings messages, or would if somebody took them, is not stuck. One that makes way for another to the
      // same peer has the time of any silent connection: the far end may be slow to read what is still on its way there.
      const makesWay = !this.hub.closing && connection.peer !== null && connection.peer.connection !== null;
      const millis = makesWay ? Math.max(limits.closeMillis, 3 * limits.keepaliveMillis) : limits.closeMillis;
      // Keepalives of ours are no sign of its life; last words that it takes are.
      const tookAt = connection.finWanted ? connection.wroteAt : 0;
      const lastAt = Math.max(connection.retiredAt, connection.readAt, tookAt);
      if (now - connection.wroteAt >= limits.keepaliveMillis) connection.keepAlive();
      if (connection.paused || now - lastAt < millis) return;
      const text = `${address} did not hang up within ${millis} ms`;
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
