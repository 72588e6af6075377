/** Outbound flows: attempts, and the pauses between them. */
import { lookup } from "node:dns/promises";
import { AddressError, LimitError, PeerUnreachableError, ShimError, ZapError } from "../../errors/index.ts";
import { parseAddress } from "../common/address.ts";
import { keepUp, pauseDialling } from "../common/backoff.ts";
import type { Hub } from "./hub.ts";
import { ipBytes, isGroup, isMapped, isUnspecified, sameIp } from "./ip.ts";
import type { Peer } from "../native/peer.ts";
import { dialError, REASON } from "./reasons.ts";

const NUMBER_MAX = 0xffff_ffff;
/** Before an attempt is repeated that found another connection, milliseconds. */
const AGAIN_MILLIS = 50;

/** One attempt to reach an address. */
export interface Dial {
  readonly address: string;
  /** Who must answer; null where the address is all that is known. */
  readonly expected: string | null;
  /** The node's number for it; 0 before it is under way. */
  number: number;
  settled: boolean;
  readonly settle: (outcome: Peer | ZapError) => void;
}

export class Dialler {
  private readonly hub: Hub;
  /** Attempts that the node is at. */
  private readonly dials = new Map<number, Dial>();
  /** Those whose name is being looked up. */
  private readonly lookups = new Set<Dial>();
  private lastNumber = 0;

  constructor(hub: Hub) {
    this.hub = hub;
  }

  get count(): number {
    return this.dials.size + this.lookups.size;
  }

  /** Starts an attempt. `expected` is who must answer. `settle` is called exactly once, never from inside this call. */
  dial(address: string, expected: string | null, settle: (outcome: Peer | ZapError) => void): Dial {
    const dial: Dial = { address, expected, number: 0, settled: false, settle };
    const { connections } = this.hub.limits;
    if (this.count >= connections) {
      const text = `${address}: not dialled, there are ${connections} attempts (limits.connections)`;
      queueMicrotask(() => this.finish(dial, new LimitError(text)));
      return dial;
    }
    this.start(dial);
    return dial;
  }

  private start(dial: Dial): void {
    this.lookups.add(dial);
    this.begin(dial).catch((cause: unknown) => {
      const known = cause instanceof ZapError && !(cause instanceof ShimError);
      const text = cause instanceof Error ? cause.message : String(cause);
      this.finish(dial, known ? cause : new PeerUnreachableError(`${dial.address}: ${text}`, { cause }));
    });
  }

  private async begin(dial: Dial): Promise<void> {
    const target = parseAddress(dial.address);
    if (target.kind === "unix")
      throw new AddressError(`address ${JSON.stringify(dial.address)}: the dpdk wire has no unix sockets`);
    const ip = await this.resolve(target.host);
    this.lookups.delete(dial);
    if (dial.settled) return;
    const number = this.nextNumber();
    dial.number = number;
    this.dials.set(number, dial);
    if (this.hub.engine.dial({ number, ip, port: target.port, id: dial.expected })) return;
    throw new LimitError(`${dial.address}: not dialled, the node is at as many attempts as it can be`);
  }

  /** The first address of a version that the port has. */
  private async resolve(host: string): Promise<Uint8Array> {
    const { ip4, ip6 } = this.hub.options.environment;
    const reach = (ip: Uint8Array): boolean => (isMapped(ip) ? ip4 : ip6) !== null;
    const literal = ipBytes(host);
    // Not from inside the call that asks.
    const found = literal === null ? await lookup(host, { all: true }) : await [{ address: host }];
    const ips = found.map(({ address }) => ipBytes(address)).filter((ip) => ip !== null);
    const ip = ips.find(reach);
    if (ip !== undefined) return this.one(host, ip);
    const why =
      ips.length === 0
        ? "it has no address that the dpdk wire can use; one with a zone is none"
        : `the port has no ${ip4 === null ? "IPv4" : "IPv6"} address`;
    throw new PeerUnreachableError(`${host} is not within reach: ${why}`);
  }

  /** Of a single other host: nobody else can answer, and one would wait in vain. */
  private one(host: string, ip: Uint8Array): Uint8Array {
    const { ip4, ip6 } = this.hub.options.environment;
    if (isUnspecified(ip) || isGroup(ip)) throw new AddressError(`${host} is the address of no single host`);
    if ([ip4, ip6].some((own) => own !== null && sameIp(own.ip, ip)))
      throw new AddressError(`${host} is an address of this node's own port`);
    return ip;
  }

  private nextNumber(): number {
    do this.lastNumber = this.lastNumber === NUMBER_MAX ? 1 : this.lastNumber + 1;
    while (this.dials.has(this.lastNumber));
    return this.lastNumber;
  }

  /** A dial has led to this peer. */
  reached(number: number, peer: Peer): void {
    const dial = this.dials.get(number);
    if (dial === undefined) return;
    if (peer.address === null) peer.address = dial.address;
    this.finish(dial, peer);
  }

  /** The node says that a dial has ended without a flow. */
  ended(number: number, reason: number): void {
    const dial = this.dials.get(number);
    if (dial === undefined) return;
    if (reason === REASON.duplicate) return this.again(dial);
    const name = this.hub.engine.nameIn("reason", reason);
    this.finish(dial, dialError(dial.address, reason, name, this.hub.limits.handshakeMillis));
  }

  /**
   * The far end has another connection with us that we have not: it dialled us at the same time, say. Soon we have it too, or it finds
   * that it is dead, and then the next attempt says so.
   */
  private again(dial: Dial): void {
    this.dials.delete(dial.number);
    dial.number = 0;
    this.lookups.add(dial);
    setTimeout(() => {
      if (!dial.settled) this.start(dial);
    }, AGAIN_MILLIS);
  }

  private finish(dial: Dial, outcome: Peer | ZapError): void {
    this.lookups.delete(dial);
    this.dials.delete(dial.number);
    if (dial.settled) return;
    dial.settled = true;
    dial.settle(outcome);
  }

  /** Gives an attempt up. */
  abandon(dial: Dial, error: ZapError): void {
    if (dial.settled) return;
    if (dial.number !== 0) this.hub.engine.cancelDial(dial.number);
    this.finish(dial, error);
  }

  /** Calls off every attempt. */
  close(error: ZapError): void {
    for (const dial of [...this.dials.values(), ...this.lookups]) this.abandon(dial, error);
  }

  /** Dials a peer whose address is known, unless that is under way, done, or not due yet. */
  keepUp(peer: Peer, now: number): void {
    keepUp(peer, this.hub, now, (address, expected, settle) => this.dial(address, expected, settle));
  }

  /** Sets when a peer that was not reached, or was lost, is dialled again. */
  pause(peer: Peer): void {
    pauseDialling(peer, this.hub.limits);
  }
}
