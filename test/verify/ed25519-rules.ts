/** Ed25519's rules (RFC 8032, 5.1, as Go's crypto/ed25519 has them) over plain big integers: slow, and short enough to be read. */
import { createHash } from "node:crypto";

export const P = 2n ** 255n - 19n;
/** The order of the base point. */
export const L = 2n ** 252n + 27742317777372353535851937790883648493n;

export type Point = readonly [x: bigint, y: bigint];

const mod = (value: bigint): bigint => ((value % P) + P) % P;

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let square = mod(base), rest = exponent; rest > 0n; rest >>= 1n) {
    if ((rest & 1n) === 1n) result = mod(result * square);
    square = mod(square * square);
  }
  return result;
}

const inverse = (value: bigint): bigint => power(value, P - 2n);
const D = mod(-121665n * inverse(121666n));
const ROOT_OF_MINUS_ONE = power(2n, (P - 1n) / 4n);

export const NEUTRAL: Point = [0n, 1n];

/** X, Y, Z and T of x = X/Z, y = Y/Z, xy = T/Z, so that an addition needs no inversion. */
type Extended = readonly [bigint, bigint, bigint, bigint];

const extended = ([x, y]: Point): Extended => [x, y, 1n, mod(x * y)];

function affine([x, y, z]: Extended): Point {
  const scale = inverse(z);
  return [mod(x * scale), mod(y * scale)];
}

/** RFC 8032, 5.1.4: complete, so that it doubles as well. */
function sum([x1, y1, z1, t1]: Extended, [x2, y2, z2, t2]: Extended): Extended {
  const a = mod((y1 - x1) * (y2 - x2));
  const b = mod((y1 + x1) * (y2 + x2));
  const c = mod(mod(2n * D * t1) * t2);
  const d = mod(2n * z1 * z2);
  const [e, f, g, h] = [b - a, d - c, d + c, b + a];
  return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
}

export function add(left: Point, right: Point): Point {
  return affine(sum(extended(left), extended(right)));
}

export function multiply(factor: bigint, point: Point): Point {
  let result = extended(NEUTRAL);
  for (let double = extended(point), rest = factor; rest > 0n; rest >>= 1n) {
    if ((rest & 1n) === 1n) result = sum(result, double);
    double = sum(double, double);
  }
  return affine(result);
}

export function fromLittle(bytes: Uint8Array): bigint {
  return bytes.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n);
}

export function toLittle(value: bigint): Uint8Array {
  return Uint8Array.from({ length: 32 }, (_, at) => Number((value >> BigInt(8 * at)) & 0xffn));
}

export function encode([x, y]: Point): Uint8Array {
  return toLittle(y | ((x & 1n) << 255n));
}

/** y is taken modulo p, and x = 0 with the sign bit set is taken, as Go does (RFC 8032, 5.1.3, would refuse both). */
export function decode(bytes: Uint8Array): Point | null {
  const number = fromLittle(bytes);
  const y = mod(number & (2n ** 255n - 1n));
  const u = mod(y * y - 1n);
  const v = mod(D * mod(y * y) + 1n);
  let x = power(u * inverse(v), (P + 3n) / 8n);
  if (mod(v * mod(x * x)) !== u) x = mod(x * ROOT_OF_MINUS_ONE);
  if (mod(v * mod(x * x)) !== u) return null;
  return (x & 1n) === number >> 255n ? [x, y] : [mod(-x), y];
}

export const BASE = decode(toLittle(mod(4n * inverse(5n))))!;

/** k = SHA-512(R, A, M) modulo the order. */
export function challenge(r: Uint8Array, key: Uint8Array, message: Uint8Array): bigint {
  return fromLittle(createHash("sha512").update(r).update(key).update(message).digest()) % L;
}

export function isValid(key: Uint8Array, message: Uint8Array, signature: Uint8Array): boolean {
  const r = signature.subarray(0, 32);
  const s = fromLittle(signature.subarray(32));
  const point = decode(key);
  if (s >= L || point === null) return false;
  const [x, y] = point;
  const expected = add(multiply(s, BASE), multiply(challenge(r, key, message), [mod(-x), y]));
  return Buffer.compare(encode(expected), r) === 0;
}

/** Every encoding, canonical or not, of every point of small order, and others with a y that is not below p. */
export function oddEncodings(): Uint8Array[] {
  const found = new Map<string, Uint8Array>();
  const keep = (value: bigint): void => {
    for (const bytes of [toLittle(value), toLittle(value ^ (1n << 255n))])
      found.set(Buffer.from(bytes).toString("hex"), bytes);
  };
  const generator = smallOrderGenerator();
  for (let i = 0n; i < 8n; i++) {
    const [, y] = multiply(i, generator);
    keep(y);
    if (y + P < 2n ** 255n) keep(y + P);
  }
  for (let y = P; y < 2n ** 255n; y++) keep(y);
  return [...found.values()];
}

/** A point of order 8. */
export function smallOrderGenerator(): Point {
  for (let y = 2n; ; y++) {
    const point = decode(toLittle(y));
    if (point === null) continue;
    const small = multiply(L, point);
    const [x] = multiply(4n, small);
    const [, four] = multiply(4n, small);
    if (x !== 0n || four !== 1n) return small;
  }
}

/** Every encoding that decodes to a point of small order: the eight proper ones, and those with y of p or more or with the sign of x = 0. */
export function smallOrderEncodings(): Uint8Array[] {
  const generator = smallOrderGenerator();
  const points = Array.from({ length: 8 }, (_, at) => encode(multiply(BigInt(at), generator)).toHex());
  return oddEncodings().filter((bytes) => {
    const point = decode(bytes);
    return point !== null && points.includes(encode(point).toHex());
  });
}

/** A signature by the secret scalar `a`, of the key `publicKey`, with `nonce`; `small` is added to R. */
export function signRaw(
  a: bigint,
  publicKey: Uint8Array,
  message: Uint8Array,
  nonce: bigint,
  small: Point,
): Uint8Array {
  const r = encode(add(multiply(nonce, BASE), small));
  const s = (nonce + challenge(r, publicKey, message) * a) % L;
  return new Uint8Array([...r, ...toLittle(s)]);
}
