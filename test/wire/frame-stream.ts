/** Streams of frames for tests of the reader: what is sent, and what must come of it. */
import { expect } from "bun:test";
import fc from "fast-check";
import { frameOf, joined, messageOf, sameBytes, u32 } from "../support/messages.ts";

export const FRAME_BYTES_MAX = 256 * 1024;

/** What a reader tells its sink, in one line that two runs can be compared by. */
export type Outcome = readonly [what: string, bytes: Uint8Array | string];

export interface StreamPart {
  readonly bytes: Uint8Array;
  readonly outcome: Outcome | null;
}

const SIZES = [
  16,
  17,
  19,
  20,
  64,
  255,
  1_000,
  4_096,
  65_515,
  65_516,
  65_535,
  65_536,
  65_537,
  65_556,
  131_072,
  200_000,
  FRAME_BYTES_MAX,
];
const size = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 16, max: 300 }) },
  { weight: 3, arbitrary: fc.constantFrom(...SIZES) },
);
const number = fc.nat(1_000_000);

function part(frame: Uint8Array, outcome: Outcome): StreamPart {
  return { bytes: frameOf(frame), outcome };
}

const good = fc.tuple(size, number).map(([bytes, n]) => {
  const message = messageOf(bytes, n);
  return part(message, ["message", message]);
});
/** The size field may be smaller than the frame: what lies behind it belongs to the frame. */
const padded = fc.tuple(size, number, fc.nat(100)).map(([bytes, n, cut]) => {
  const message = messageOf(bytes, n, { size: Math.max(16, bytes - cut) });
  return part(message, ["message", message]);
});
const keepalive = fc.constant(part(new Uint8Array(0), ["control", new Uint8Array(0)]));
const control = fc
  .uint8Array({ minLength: 1, maxLength: 15 })
  .map((bytes) => part(bytes, ["control", bytes]));
const badMagic = fc
  .tuple(size, number, fc.integer({ min: 0, max: 0xffff_ffff }))
  .filter(([, , magic]) => magic !== 0x0050415a)
  .map(([bytes, n, magic]) => part(messageOf(bytes, n, { magic }), ["dropped", "magic"]));
const badVersion = fc
  .tuple(size, number, fc.constantFrom(0, 3, 256, 65_535))
  .map(([bytes, n, version]) => part(messageOf(bytes, n, { version }), ["dropped", "version"]));
const badSize = fc
  .tuple(size, number, fc.oneof(fc.nat(15), fc.integer({ min: 1, max: 1_000 })))
  .map(([bytes, n, by]) =>
    part(messageOf(bytes, n, { size: by < 16 ? by : bytes + by }), ["dropped", "size"]),
  );
/** A call frame of a Go node: `u32` id, `u32` 1, then a message. */
const goCall = fc.tuple(size, number).map(([bytes, n]) => {
  const message = messageOf(Math.min(bytes, FRAME_BYTES_MAX - 8), n);
  return part(joined(u32(n), u32(1), message), ["dropped", "magic"]);
});

const anyFrame = fc.oneof(
  { weight: 8, arbitrary: good },
  { weight: 2, arbitrary: padded },
  { weight: 2, arbitrary: keepalive },
  { weight: 2, arbitrary: control },
  { weight: 1, arbitrary: badMagic },
  { weight: 1, arbitrary: badVersion },
  { weight: 1, arbitrary: badSize },
  { weight: 1, arbitrary: goCall },
);

const hello = fc
  .uint8Array({ minLength: 16, maxLength: 1_024 })
  .map((bytes) => part(bytes, ["hello", bytes]));

/** A length that ends the connection; the bytes behind it must not be read. */
const tooLarge = fc
  .tuple(fc.integer({ min: FRAME_BYTES_MAX + 1, max: 0xffff_ffff }), fc.uint8Array({ maxLength: 100 }))
  .map(([length, rest]): StreamPart => {
    return { bytes: joined(u32(length), rest), outcome: ["fatal", "ERR_ZAP_FRAME_TOO_LARGE"] };
  });

/** A hello, frames of all kinds, and at times a frame that is too large at the end. */
export const stream: fc.Arbitrary<StreamPart[]> = fc
  .tuple(hello, fc.array(anyFrame, { maxLength: 12 }), fc.option(tooLarge, { freq: 4 }))
  .map(([first, frames, last]) => [first, ...frames, ...(last === null ? [] : [last])]);

/** Chunk sizes, used over and over: all at once, one byte, odd, large, mixed. */
export const chunkSizes: fc.Arbitrary<number[]> = fc.oneof(
  fc.constant<number[]>([Number.MAX_SAFE_INTEGER]),
  fc.constant<number[]>([1]),
  fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 }),
  fc.array(fc.integer({ min: 1, max: 100_000 }), { minLength: 1, maxLength: 10 }),
  fc.array(fc.oneof(fc.integer({ min: 1, max: 24 }), fc.integer({ min: 60_000, max: 140_000 })), {
    minLength: 1,
    maxLength: 10,
  }),
);

/** The same outcomes, and every byte of them. `null` in `wanted` stands for nothing. */
export function expectOutcomes(got: readonly Outcome[], wanted: readonly (Outcome | null)[]): void {
  const name = ([what, bytes]: Outcome) => `${what} ${typeof bytes === "string" ? bytes : bytes.length}`;
  const expected = wanted.filter((one) => one !== null);
  expect(got.map(name)).toEqual(expected.map(name));
  for (const [i, [what, bytes]] of expected.entries()) {
    const other = got[i]?.[1];
    if (typeof bytes === "string" || typeof other === "string" || other === undefined) continue;
    if (!sameBytes(bytes, other)) throw new Error(`${what} ${i} is damaged`);
  }
}
