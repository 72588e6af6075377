/**
 * Who a new connection belongs to, and which of two connections with the same node stays.
 *
 * The rules (reasons and proof in `docs/wire-sockets.md`):
 *  1. A hello from a node that we have a connection with is a duplicate: turned away.
 *  2. When our own hello to that very node is unanswered, the connection dialled by the smaller id stays.
 *  3. When our own hello to an unknown node is unanswered, the new connection is taken but held (neither read nor sent on)
 *     until that answer is in: it might come from the same node.
 *  4. When both turn out to be of one node, the one dialled by the smaller id stays; the other finishes what it began,
 *     half-closes, and is read to its end before the first byte of the one that stays.
 */
import { ConnectionLostError, HandshakeError, type ZapError } from "../../errors/index.ts";
import type { PeerBook } from "../common/book.ts";
import { Link } from "./above.ts";
import type { Connection } from "./connection.ts";
import type { Dial, Dialler } from "./dialler.ts";
import {
  decodeHello,
  encodeHello,
  HELLO_DUPLICATE,
  HELLO_KIN,
  HELLO_PLAIN,
  HELLO_VERBS,
  type Hello,
  type HelloKind,
} from "./hello.ts";
import { PAUSE_HELD, type Hub } from "./hub.ts";
import type { Peer } from "./peer.ts";

/** How long a new connection may be held for the sake of an unanswered hello of ours. */
const HOLD_MILLIS_MAX = 1_000;

/** A connection that waits for answers to hellos of ours (rule 3). */
interface Hold {
  readonly rivals: Set<Dial>;
  readonly since: number;
}

export class Greeter {
  private readonly hub: Hub;
  private readonly dialler: Dialler;
  private readonly book: PeerBook<Peer>;
  private readonly allow: ReadonlySet<string> | null;
  private readonly heldForDials = new Map<Connection, Hold>();
  /** Second connections with nodes that are not this library. */
  private readonly spares = new Map<Peer, { readonly connection: Connection; readonly timer: Timer }>();
  /** Connections that are read only when another has been read to its end (rule 4). */
  private readonly heldBehind = new Map<Connection, Connection>();

  constructor(hub: Hub, dialler: Dialler, book: PeerBook<Peer>, allow: ReadonlySet<string> | null) {
    this.hub = hub;
    this.dialler = dialler;
    this.book = book;
    this.allow = allow;
  }

  /** A dialled connection is up (and secured, with TLS): the dialler speaks first. */
  greet(connection: Connection): void {
    const dial = this.dialler.of(connection);
    if (dial === undefined) return connection.end();
    const known = dial.expected === null ? undefined : this.book.find(dial.expected);
    if (known !== undefined && known.connection !== null) {
      // It dialled us while we dialled it, and was faster.
      this.dialler.finish(dial, known);
      return connection.leave();
    }
    dial.helloSent = true;
    dial.helloAt = performance.now();
    connection.say(encodeHello(this.hub.nodeId, this.greeting));
  }

  hello(connection: Connection, bytes: Uint8Array): void {
    const hello = decodeHello(bytes);
    if (typeof hello === "string")
      return connection.fail(new HandshakeError(`${connection.address}: ${hello}`));
    const fault = this.vet(connection, hello);
    if (fault !== null) return connection.fail(fault);
    if (connection.inbound) this.inboundHello(connection, hello);
    else this.answer(connection, hello);
  }

  private vet(connection: Connection, { nodeId }: Hello): ZapError | null {
    const { address, certificateNames } = connection;
    if (nodeId === this.hub.nodeId) {
      return new HandshakeError(`${address} is this node itself, or another one with its id ${nodeId}`);
    }
    if (certificateNames !== null && !certificateNames.has(nodeId)) {
      const names = [...certificateNames].join(", ") || "no name";
      return new HandshakeError(`${address} calls itself ${nodeId}, but its certificate is for ${names}`);
    }
    if (this.allow !== null && !this.allow.has(nodeId)) {
      return new HandshakeError(`${address} calls itself ${nodeId}, which is not on the allow-list`);
    }
    return null;
  }

  private inboundHello(connection: Connection, hello: Hello): void {
    const { hub } = this;
    const peer = this.book.of(hello.nodeId);
    connection.kin = hello.kind !== HELLO_PLAIN;
    const rivals = new Set<Dial>();
    let oursStays = false;
    const now = performance.now();
    for (const dial of [...this.dialler.dials]) {
      if (!dial.helloSent || dial.settled) continue;
      if (now - dial.helloAt >= HOLD_MILLIS_MAX) {
        // Whoever lives there is mute: no reason to turn somebody away, or to let somebody wait.
        if (dial.expected === null || dial.expected === peer.id) this.giveUp(dial);
        continue;
      }
      if (dial.expected === null || dial.expected === peer.id) rivals.add(dial);
      if (dial.expected === peer.id && hub.nodeId < peer.id) oursStays = true;
    }
    if (peer.connection !== null || oursStays) {
      hub.drop("duplicate");
      connection.turnedAway = true;
      // If the first connection is dead without our knowing, writing to it is how we learn of it.
      if (peer.connection?.kin === true) peer.connection.keepAlive();
      // Other nodes expect the bare end of the connection; ours are told, so that `connect` learns who lives there.
      if (connection.kin) connection.farewell(encodeHello(hub.nodeId, HELLO_DUPLICATE));
      else connection.end();
      return;
    }
    this.own(connection, peer, hello);
    connection.say(encodeHello(hub.nodeId, connection.kin ? this.greeting : HELLO_PLAIN));
    if (rivals.size > 0) {
      this.heldForDials.set(connection, { rivals, since: performance.now() });
      connection.pause(PAUSE_HELD);
    }
    peer.attach(connection, rivals.size === 0);
    this.announce(connection, peer);
  }

  private answer(connection: Connection, hello: Hello): void {
    const dial = this.dialler.of(connection);
    if (dial === undefined) return connection.end();
    if (dial.expected !== null && dial.expected !== hello.nodeId) {
      const text = `${dial.address} is ${hello.nodeId}, not ${dial.expected}`;
      return connection.fail(new HandshakeError(text));
    }
    const peer = this.book.of(hello.nodeId);
    if (peer.address === null) peer.address = dial.address;
    if (hello.kind === HELLO_DUPLICATE) {
      this.dialler.dials.delete(dial);
      this.settleDuplicate(dial, peer);
      this.release(dial);
      return connection.end();
    }
    connection.kin = hello.kind !== HELLO_PLAIN;
    this.own(connection, peer, hello);
    const rival = peer.connection;
    if (rival === null) {
      peer.attach(connection, true);
      this.announce(connection, peer);
    } else if (!connection.kin) this.keepSpare(peer, connection);
    else this.settleRivals(peer, rival, connection);
    this.dialler.finish(dial, peer);
    this.release(dial);
  }

  /** Rule 4. `dialled` is the connection that we dialled and whose hello has just been answered. */
  private settleRivals(peer: Peer, rival: Connection, dialled: Connection): void {
    if (!rival.inbound) {
      // We dialled both, and it would have called the second a duplicate if it still knew the first.
      rival.fail(new ConnectionLostError("it does not know this connection any more"));
      peer.attach(dialled, true);
      this.announce(dialled, peer);
    } else if (this.hub.nodeId < peer.id) {
      this.heldForDials.delete(rival);
      this.holdBehind(dialled, rival);
      peer.retireConnection();
      peer.attach(dialled, true);
    } else {
      // Only the far end can have sent on the one that goes: it knew of that one alone.
      this.holdBehind(rival, dialled);
      dialled.retireAfterReading();
    }
  }

  private get greeting(): HelloKind {
    return this.hub.above === null ? HELLO_KIN : HELLO_VERBS;
  }

  private own(connection: Connection, peer: Peer, { kind }: Hello): void {
    connection.peer = peer;
    connection.peerId = peer.id;
    connection.state = "open";
    if (kind === HELLO_VERBS && this.hub.above !== null) connection.becomeLink(new Link(connection));
    this.hub.checkTotal(connection);
  }

  private announce(connection: Connection, peer: Peer): void {
    const { address, inbound, link } = connection;
    // There is more to come before messages pass.
    if (link !== null) return;
    this.hub.emit({ type: "connected", peer: peer.id, address, dialled: !inbound });
  }

  /** The far end says that we are connected already: true at once, or as soon as its other connection gets through. */
  private settleDuplicate(dial: Dial, peer: Peer): void {
    if (peer.connection !== null) return this.dialler.finish(dial, peer);
    const text = `${dial.address} (${peer.id}) says that it is connected with this node already`;
    const waiter = (error: ZapError | null): void => {
      clearTimeout(timer);
      this.dialler.finish(dial, error ?? peer);
    };
    dial.cancel = () => {
      clearTimeout(timer);
      peer.connectWaiters.delete(waiter);
    };
    const timer = setTimeout(() => {
      peer.connectWaiters.delete(waiter);
      this.dialler.finish(dial, new HandshakeError(`${text}, and no such connection came up`));
    }, this.hub.limits.handshakeMillis);
    peer.connectWaiters.add(waiter);
  }

  /**
   * Nodes of other kinds close one of two connections at once, by rules of their own: nothing is sent on either until that has
   * happened.
   */
  private keepSpare(peer: Peer, connection: Connection): void {
    const timer = setTimeout(() => {
      this.spares.delete(peer);
      connection.retire(null);
      peer.start();
    }, this.hub.limits.handshakeMillis);
    this.spares.set(peer, { connection, timer });
    peer.ready = false;
  }

  private holdBehind(connection: Connection, first: Connection): void {
    this.heldBehind.set(connection, first);
    connection.pause(PAUSE_HELD);
  }

  /** An attempt has come to its end: what was held for its sake alone goes on. */
  release(dial: Dial): void {
    for (const [connection, { rivals }] of this.heldForDials) {
      if (!rivals.delete(dial) || rivals.size > 0) continue;
      this.heldForDials.delete(connection);
      const { peer } = connection;
      if (peer !== null && peer.connection === connection && !this.spares.has(peer)) peer.start();
      this.unhold(connection);
    }
  }

  /**
   * Ends holds that last too long, by giving up the attempts that they wait for: an address that takes our connection and stays
   * mute must not keep honest peers waiting.
   */
  endHolds(now: number): void {
    for (const { rivals, since } of [...this.heldForDials.values()]) {
      if (now - since < HOLD_MILLIS_MAX) continue;
      for (const dial of [...rivals]) this.giveUp(dial);
    }
  }

  private giveUp(dial: Dial): void {
    const text = `${dial.address} did not answer the hello within ${HOLD_MILLIS_MAX} ms, while others wait for that`;
    this.dialler.abandon(dial, new HandshakeError(text));
    this.release(dial);
  }

  stop(): void {
    for (const { timer } of this.spares.values()) clearTimeout(timer);
    this.spares.clear();
  }

  /** A connection is gone (and its peer told): nothing waits behind it any more. */
  gone(connection: Connection): void {
    const { peer } = connection;
    const spare = peer === null ? undefined : this.spares.get(peer);
    if (peer !== null && spare !== undefined) {
      this.spares.delete(peer);
      clearTimeout(spare.timer);
      if (spare.connection !== connection && peer.connection === null) peer.attach(spare.connection, true);
      else if (peer.connection !== null) peer.start();
    }
    this.heldForDials.delete(connection);
    this.heldBehind.delete(connection);
    for (const [waiting, first] of this.heldBehind) {
      if (first !== connection) continue;
      this.heldBehind.delete(waiting);
      this.unhold(waiting);
    }
  }

  private unhold(connection: Connection): void {
    if (!this.heldForDials.has(connection) && !this.heldBehind.has(connection))
      connection.unpause(PAUSE_HELD);
  }
}
