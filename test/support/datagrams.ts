/** The datagrams of docs/wire-dpdk.md as bytes, written by hand from that page; nothing of the library is in here. */

export const KIND = {
  init: 1,
  cookie: 2,
  hello: 3,
  welcome: 4,
  data: 5,
  ack: 6,
  close: 7,
  refuse: 8,
} as const;

/** Flags of DATA and ACK. */
export const ANSWER = 1;
export const DONE = 2;

/** The head of DATA and ACK. */
export const SEGMENT_BYTES = 64;

const MAGIC = [0x5a, 0x41, 0x50, 0x00] as const;
const COMMON_BYTES = 24;
const ID_BYTES = 60;
/** By kind; HELLO and WELCOME are longer by their padding. */
const LEAST = [0, 112, 64, 152, 128, 65, 64, 32, 48] as const;

/** CRC-32C (Castagnoli), bits reflected. */
const TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  return crc;
});

export function crc32c(bytes: Uint8Array): number {
  let crc = -1;
  for (let at = 0; at < bytes.length; at++) crc = TABLE[(crc ^ bytes[at]!) & 255]! ^ (crc >>> 8);
  return ~crc >>> 0;
}

/** `a` less `b` as serial numbers: below 0 where `a` comes first. */
export function serial(a: number, b: number): number {
  return (a - b) | 0;
}

/** What each end says of itself in HELLO and WELCOME. */
export interface Terms {
  readonly payload: number;
  readonly credits: number;
  readonly start: number;
  readonly largest: number;
}

/** What is the same in INIT and HELLO. */
export interface Client {
  readonly session: bigint;
  /** 16 bytes. */
  readonly nonce: Uint8Array;
  readonly id: string;
}

export interface Cookie {
  readonly slot: number;
  /** 16 bytes. */
  readonly mac: Uint8Array;
}

export interface Segment {
  readonly segment: number;
  readonly message: number;
  readonly length: number;
  readonly offset: number;
  readonly ack: number;
  readonly limit: number;
  readonly sack: bigint;
  readonly number: number;
  readonly echo: number;
}

/** Sets the checksum, which is over everything. Returns the same bytes. */
export function seal(datagram: Buffer): Buffer {
  datagram.writeUInt32LE(0, 8);
  datagram.writeUInt32LE(crc32c(datagram), 8);
  return datagram;
}

function fresh(kind: number, bytes: number, session: bigint, flags = 0, epoch = 0): Buffer {
  const datagram = Buffer.alloc(bytes);
  datagram.set(MAGIC, 0);
  datagram[4] = 1;
  datagram[5] = kind;
  datagram.writeUInt16LE(flags, 6);
  datagram.writeUInt32LE(epoch, 12);
  datagram.writeBigUInt64LE(session, 16);
  return datagram;
}

function putId(datagram: Buffer, id: string): void {
  datagram[48] = Buffer.byteLength(id);
  datagram.write(id, 49, ID_BYTES, "utf8");
}

function putClient(datagram: Buffer, client: Client): void {
  datagram.writeBigUInt64LE(client.session, 24);
  datagram.set(client.nonce, 32);
  putId(datagram, client.id);
}

export function initOf(client: Client): Buffer {
  const datagram = fresh(KIND.init, LEAST[KIND.init], 0n);
  putClient(datagram, client);
  return seal(datagram);
}

export function cookieOf(to: Client, cookie: Cookie): Buffer {
  const datagram = fresh(KIND.cookie, LEAST[KIND.cookie], to.session);
  datagram.set(to.nonce, 24);
  datagram.writeUInt32LE(cookie.slot, 40);
  datagram.set(cookie.mac, 48);
  return seal(datagram);
}

export function helloOf(client: Client, cookie: Cookie, terms: Terms): Buffer {
  const datagram = fresh(KIND.hello, Math.max(64 + terms.payload, LEAST[KIND.hello]), 0n);
  putClient(datagram, client);
  datagram.writeUInt32LE(cookie.slot, 112);
  datagram.writeUInt32LE(terms.payload, 116);
  datagram.set(cookie.mac, 120);
  datagram.writeUInt32LE(terms.credits, 136);
  datagram.writeUInt32LE(terms.start, 140);
  datagram.writeUInt32LE(terms.largest, 144);
  return seal(datagram);
}

/** `session` is the answerer's own. */
export function welcomeOf(to: Client, session: bigint, id: string, terms: Terms): Buffer {
  const datagram = fresh(KIND.welcome, Math.max(64 + terms.payload, LEAST[KIND.welcome]), to.session);
  putClient(datagram, { session, nonce: to.nonce, id });
  datagram.writeUInt32LE(terms.payload, 112);
  datagram.writeUInt32LE(terms.credits, 116);
  datagram.writeUInt32LE(terms.start, 120);
  datagram.writeUInt32LE(terms.largest, 124);
  return seal(datagram);
}

/** DATA, or an ACK where there is no payload. */
export function segmentOf(
  session: bigint,
  fields: Segment,
  { payload, flags = 0, epoch = 0 }: { payload?: Uint8Array; flags?: number; epoch?: number } = {},
): Buffer {
  const kind = payload === undefined ? KIND.ack : KIND.data;
  const datagram = fresh(kind, SEGMENT_BYTES + (payload?.length ?? 0), session, flags, epoch);
  const { segment, message, length, offset, ack, limit, sack, number, echo } = fields;
  [segment, message, length, offset, ack, limit].forEach((value, at) =>
    datagram.writeUInt32LE(value >>> 0, 24 + 4 * at),
  );
  datagram.writeBigUInt64LE(sack, 48);
  datagram.writeUInt32LE(number >>> 0, 56);
  datagram.writeUInt32LE(echo >>> 0, 60);
  if (payload !== undefined) datagram.set(payload, SEGMENT_BYTES);
  return seal(datagram);
}

export function closeOf(session: bigint, reason: number, ack: number): Buffer {
  const datagram = fresh(KIND.close, LEAST[KIND.close], session);
  datagram.writeUInt32LE(reason, 24);
  datagram.writeUInt32LE(ack >>> 0, 28);
  return seal(datagram);
}

export function refuseOf(to: Client, reason: number): Buffer {
  const datagram = fresh(KIND.refuse, LEAST[KIND.refuse], to.session);
  datagram.writeUInt32LE(reason, 24);
  datagram.set(to.nonce, 32);
  return seal(datagram);
}

/** A datagram that came. Which of the getters make sense depends on its kind. */
export class Datagram {
  readonly bytes: Buffer;

  /** Throws for what the page does not describe: what comes from the transport must not be that. */
  constructor(bytes: Uint8Array) {
    this.bytes = Buffer.from(bytes);
    const { length } = this.bytes;
    if (length < COMMON_BYTES) throw new Error(`a datagram of ${length} bytes`);
    if (MAGIC.some((byte, at) => this.bytes[at] !== byte)) throw new Error("a datagram without the magic");
    if (this.bytes[4] !== 1) throw new Error(`a datagram of version ${this.bytes[4]}`);
    if (length < (LEAST[this.kind] || Infinity))
      throw new Error(`a datagram of kind ${this.kind} with ${length} bytes`);
    if (seal(Buffer.from(bytes)).readUInt32LE(8) !== this.u32(8))
      throw new Error(`a datagram of kind ${this.kind} with a wrong checksum`);
  }

  get kind(): number {
    return this.bytes[5]!;
  }
  get flags(): number {
    return this.bytes.readUInt16LE(6);
  }
  get epoch(): number {
    return this.u32(12);
  }
  /** The receiver's. */
  get session(): bigint {
    return this.bytes.readBigUInt64LE(16);
  }
  /** INIT, HELLO; of WELCOME the answerer's session, the dialler's nonce, the answerer's id. */
  get client(): Client {
    const session = this.bytes.readBigUInt64LE(24);
    const id = this.bytes.toString("utf8", 49, 49 + this.bytes[48]!);
    return { session, nonce: this.bytes.subarray(32, 48), id };
  }
  /** Of COOKIE and REFUSE. */
  get nonce(): Uint8Array {
    return this.kind === KIND.cookie ? this.bytes.subarray(24, 40) : this.bytes.subarray(32, 48);
  }
  /** Of COOKIE and HELLO. */
  get cookie(): Cookie {
    if (this.kind === KIND.cookie) return { slot: this.u32(40), mac: this.bytes.subarray(48, 64) };
    return { slot: this.u32(112), mac: this.bytes.subarray(120, 136) };
  }
  /** Of HELLO and WELCOME. */
  get terms(): Terms {
    const [payload, ...at] = this.kind === KIND.hello ? [116, 136, 140, 144] : [112, 116, 120, 124];
    const [credits, start, largest] = at.map((offset) => this.u32(offset));
    return { payload: this.u32(payload!), credits: credits!, start: start!, largest: largest! };
  }
  /** Of DATA and ACK. */
  get fields(): Segment {
    const [segment, message, length, offset, ack, limit] = [24, 28, 32, 36, 40, 44].map((at) => this.u32(at));
    return {
      ...{ segment: segment!, message: message!, length: length!, offset: offset!, ack: ack!, limit: limit! },
      ...{ sack: this.bytes.readBigUInt64LE(48), number: this.u32(56), echo: this.u32(60) },
    };
  }
  /** Of DATA. */
  get payload(): Uint8Array {
    return this.bytes.subarray(SEGMENT_BYTES);
  }
  /** Of CLOSE and REFUSE. */
  get reason(): number {
    return this.u32(24);
  }

  private u32(at: number): number {
    return this.bytes.readUInt32LE(at);
  }
}
