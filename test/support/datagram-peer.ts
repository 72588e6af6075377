/**
 * A node over an ordinary UDP socket that speaks docs/wire-dpdk.md, written from that page and sharing no code with the library: what the
 * page promises to hosts without DPDK. It dials and answers dials; `DatagramLink` is a flow.
 */
import { createHmac, randomBytes } from "node:crypto";
import { isIPv6 } from "node:net";
import { DatagramLink } from "./datagram-link.ts";
import {
  ANSWER,
  cookieOf,
  Datagram,
  helloOf,
  initOf,
  KIND,
  refuseOf,
  welcomeOf,
  type Client,
  type Cookie,
  type Terms,
} from "./datagrams.ts";
import { until } from "./wait.ts";

/** Of a port with an MTU of 1,500. */
const PAYLOAD_4 = 1_408;
const PAYLOAD_6 = 1_384;
const SLOT_MILLIS = 17_180;
const AGAIN_MILLIS = 50;
const GIVEN_UP = "the dial was given up for the other end's";

export interface PeerOptions {
  readonly hostname: string;
  readonly port?: number;
  readonly terms?: Partial<Terms>;
  /** Answers every HELLO with this reason. */
  readonly refuse?: number;
}

export interface Target {
  readonly host: string;
  readonly port: number;
}

interface Dial {
  readonly to: Target;
  readonly client: Client;
  /** Takes what comes for it. */
  answer: (datagram: Datagram) => void;
  /** The other end dialled too, and that one stays. */
  givenUp: boolean;
}

export class DatagramPeer implements Disposable {
  readonly id: string;
  /** The flows that were dialled from elsewhere, as they came up. */
  readonly accepted: DatagramLink[] = [];
  /** What came that the page does not describe. */
  readonly faults: string[] = [];
  /** Everything that came, by kind. */
  readonly counts = new Map<number, number>();
  private readonly options: PeerOptions;
  private readonly socket: Bun.udp.Socket<"uint8array">;
  private readonly key = randomBytes(32);
  /** All that there have been, by our session. */
  readonly links = new Map<bigint, DatagramLink>();
  /** By our session: candidates, and their WELCOME. */
  private readonly candidates = new Map<bigint, { client: Client; from: Target; link: () => DatagramLink }>();
  private readonly welcomes = new Map<string, Buffer>();
  /** By our session. */
  private readonly dials = new Map<bigint, Dial>();

  private constructor(id: string, options: PeerOptions, socket: Bun.udp.Socket<"uint8array">) {
    this.id = id;
    this.options = options;
    this.socket = socket;
  }

  static async open(id: string, options: PeerOptions): Promise<DatagramPeer> {
    let peer: DatagramPeer | null = null;
    const socket = await Bun.udpSocket({
      hostname: options.hostname,
      ...(options.port === undefined ? {} : { port: options.port }),
      binaryType: "uint8array",
      socket: {
        data: (_, bytes, port, host) => peer?.take(bytes, { host, port }),
        error: () => {},
      },
    });
    peer = new DatagramPeer(id, options, socket);
    return peer;
  }

  get port(): number {
    return this.socket.port;
  }

  get address(): string {
    const { hostname } = this.options;
    return isIPv6(hostname) ? `[${hostname}]:${this.port}` : `${hostname}:${this.port}`;
  }

  /** Any bytes. */
  put(bytes: Uint8Array, to: Target): void {
    if (!this.socket.closed) this.socket.send(bytes, to.port, to.host);
  }

  client(): Client {
    return { session: randomBytes(8).readBigUInt64LE() | 1n, nonce: randomBytes(16), id: this.id };
  }

  /** What it says of itself; the numbers begin where they soon wrap around. */
  terms(): Terms {
    const payload = isIPv6(this.options.hostname) ? PAYLOAD_6 : PAYLOAD_4;
    return { payload, credits: 64, start: 0xffff_fff0, largest: 1 << 24, ...this.options.terms };
  }

  /** The first half of a dial: asks for a cookie. */
  async cookie(to: Target, client: Client, millis = 4_000): Promise<Cookie> {
    const answer = await this.ask(initOf(client), to, client, [KIND.cookie], millis);
    return answer.cookie;
  }

  /** The second half: says hello. Resolves with WELCOME or REFUSE. */
  hello(to: Target, client: Client, cookie: Cookie, terms = this.terms(), millis = 4_000): Promise<Datagram> {
    return this.ask(helloOf(client, cookie, terms), to, client, [KIND.welcome, KIND.refuse], millis);
  }

  /** A whole dial. Rejects where it is refused, not answered, or given up for the other end's. */
  async dial(to: Target): Promise<DatagramLink> {
    const dial: Dial = { to, client: this.client(), answer: () => {}, givenUp: false };
    this.dials.set(dial.client.session, dial);
    try {
      return await this.shakeHands(dial);
    } finally {
      this.dials.delete(dial.client.session);
    }
  }

  private async shakeHands(dial: Dial): Promise<DatagramLink> {
    const { to, client } = dial;
    const terms = this.terms();
    const answer = await this.hello(to, client, await this.cookie(to, client), terms);
    if (answer.kind === KIND.refuse) throw new Error(`refused with reason ${answer.reason}`);
    if (answer.bytes.length < 64 + answer.terms.payload) this.faults.push("a WELCOME without its padding");
    const { session: theirSession, id: peer } = answer.client;
    const link = this.link(to, peer, client.session, theirSession, terms, answer.terms);
    // Until the other end has confirmed too.
    const deadline = performance.now() + 4_000;
    while (!link.heard && !dial.givenUp && performance.now() < deadline) {
      link.acknowledge(ANSWER);
      await Bun.sleep(AGAIN_MILLIS / 5);
    }
    if (link.heard) return link;
    link.vanish();
    throw new Error(dial.givenUp ? GIVEN_UP : "the dial was not confirmed");
  }

  /** The next flow that another node dialled. */
  async accept(millis = 8_000): Promise<DatagramLink> {
    await until(() => this.accepted.length > 0, "a dial at a bare socket", millis);
    return this.accepted.shift()!;
  }

  /** The socket is gone, without a word. */
  [Symbol.dispose](): void {
    for (const link of this.links.values()) link.vanish();
    this.socket.close();
  }

  private async ask(
    question: Buffer,
    to: Target,
    client: Client,
    kinds: readonly number[],
    millis: number,
  ): Promise<Datagram> {
    let answer: Datagram | null = null;
    const whole = this.dials.get(client.session);
    const dial: Dial = whole ?? { to, client, answer: () => {}, givenUp: false };
    this.dials.set(client.session, dial);
    dial.answer = (datagram) => {
      const { nonce } = datagram.kind === KIND.welcome ? datagram.client : datagram;
      if (kinds.includes(datagram.kind) && Buffer.compare(nonce, client.nonce) === 0) answer ??= datagram;
    };
    const again = setInterval(() => this.put(question, to), AGAIN_MILLIS);
    this.put(question, to);
    try {
      await until(() => answer !== null || dial.givenUp, `a datagram of kind ${kinds.join(" or ")}`, millis);
    } finally {
      clearInterval(again);
      if (whole === undefined) this.dials.delete(client.session);
    }
    if (answer === null) throw new Error(GIVEN_UP);
    return answer;
  }

  /** Our dial to there. */
  private twin({ host, port }: Target): Dial | undefined {
    return [...this.dials.values()].find(({ to }) => to.host === host && to.port === port);
  }

  /** Of two that dial each other the smaller one's dial stays. */
  private isSmaller(id: string): boolean {
    return Buffer.compare(Buffer.from(this.id), Buffer.from(id)) < 0;
  }

  private take(bytes: Uint8Array, from: Target): void {
    let datagram: Datagram;
    try {
      datagram = new Datagram(bytes);
    } catch (error) {
      return void this.faults.push((error as Error).message);
    }
    this.counts.set(datagram.kind, (this.counts.get(datagram.kind) ?? 0) + 1);
    if (datagram.kind === KIND.init) return this.answerInit(datagram, from);
    if (datagram.kind === KIND.hello) return this.answerHello(datagram, from);
    const { session } = datagram;
    const candidate = this.candidates.get(session);
    if (candidate !== undefined) {
      const twin = this.twin(from);
      if (twin !== undefined && this.isSmaller(candidate.client.id)) return;
      if (twin !== undefined) twin.givenUp = true;
      this.candidates.delete(session);
      const link = candidate.link();
      link.acknowledge();
      this.accepted.push(link);
    }
    const link = this.links.get(session);
    if (link !== undefined) link.take(datagram);
    else this.dials.get(session)?.answer(datagram);
  }

  /** Keeps nothing. */
  private answerInit({ client }: Datagram, from: Target): void {
    const slot = Math.floor(performance.now() / SLOT_MILLIS);
    this.put(cookieOf(client, { slot, mac: this.mac(client, from, slot) }), from);
  }

  private answerHello({ client, cookie, terms, bytes }: Datagram, from: Target): void {
    if (Buffer.compare(cookie.mac, this.mac(client, from, cookie.slot)) !== 0)
      return void this.faults.push("a HELLO with a cookie that is not ours");
    if (bytes.length < 64 + terms.payload) this.faults.push("a HELLO without its padding");
    if (this.twin(from) !== undefined && this.isSmaller(client.id)) return;
    if (this.options.refuse !== undefined) return this.put(refuseOf(client, this.options.refuse), from);
    const key = `${from.host} ${from.port} ${client.session} ${terms.payload}`;
    const known = this.welcomes.get(key);
    if (known !== undefined) return this.put(known, from);
    const { session } = this.client();
    const ours = { ...this.terms(), payload: Math.min(terms.payload, this.terms().payload) };
    const welcome = welcomeOf(client, session, this.id, ours);
    this.welcomes.set(key, welcome);
    const link = () =>
      this.link(from, client.id, session, client.session, ours, { ...terms, payload: ours.payload });
    this.candidates.set(session, { client, from, link });
    this.put(welcome, from);
  }

  private mac({ session, nonce, id }: Client, from: Target, slot: number): Uint8Array {
    const text = `${from.host} ${from.port} ${session} ${Buffer.from(nonce).toString("hex")} ${id} ${slot}`;
    return createHmac("sha256", this.key).update(text).digest().subarray(0, 16);
  }

  private link(
    to: Target,
    peer: string,
    session: bigint,
    theirSession: bigint,
    ours: Terms,
    theirs: Terms,
  ): DatagramLink {
    const link = new DatagramLink({
      ...{ peer, session, theirSession, payload: theirs.payload },
      ...{ start: ours.start, theirStart: theirs.start, credits: ours.credits, theirCredits: theirs.credits },
      put: (datagram) => this.put(datagram, to),
    });
    this.links.set(session, link);
    return link;
  }
}
