/** Ed25519 in whole numbers, by RFC 8032 and nothing else: for keys and signatures that no library makes. Slow. */
import { createHash } from "node:crypto";

export const P = 2n ** 255n - 19n;
export const L = 2n ** 252n + 27742317777372353535851937790883648493n;

const mod = (value: bigint, by = P): bigint => ((value % by) + by) % by;

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let square = mod(base), left = exponent; left > 0n; left >>= 1n, square = mod(square * square))
    if (left & 1n) result = mod(result * square);
  return result;
}

const invert = (value: bigint): bigint => power(value, P - 2n);
const D = mod(-121665n * invert(121666n));
const ROOT = power(2n, (P - 1n) / 4n);

/** Extended coordinates. */
type Point = readonly [x: bigint, y: bigint, z: bigint, t: bigint];
export const NEUTRAL: Point = [0n, 1n, 1n, 0n];

/** The point with that y and the even x, or null where there is none. */
export function pointWith(y: bigint): Point | null {
  const square = mod((y * y - 1n) * invert(D * y * y + 1n));
  let x = power(square, (P + 3n) / 8n);
  if (mod(x * x) !== square) x = mod(x * ROOT);
  if (mod(x * x) !== square) return null;
  if (x & 1n) x = P - x;
  return [x, y, 1n, mod(x * y)];
}

export const BASE: Point = pointWith(mod(4n * invert(5n)))!;

/** RFC 8032, section 5.1.4. */
export function add([x1, y1, z1, t1]: Point, [x2, y2, z2, t2]: Point): Point {
  const a = (y1 - x1) * (y2 - x2);
  const b = (y1 + x1) * (y2 + x2);
  const c = 2n * t1 * D * t2;
  const d = 2n * z1 * z2;
  const [e, f, g, h] = [mod(b - a), mod(d - c), mod(d + c), mod(b + a)];
  return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
}

export function times(scalar: bigint, point: Point): Point {
  let sum = NEUTRAL;
  for (let twice = point, left = scalar; left > 0n; left >>= 1n, twice = add(twice, twice))
    if (left & 1n) sum = add(sum, twice);
  return sum;
}

export function bytesOf(value: bigint): Uint8Array {
  return Uint8Array.from({ length: 32 }, (_, at) => Number((value >> BigInt(8 * at)) & 0xffn));
}

export function numberOf(bytes: Uint8Array): bigint {
  return bytes.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n);
}

export function encode([x, y, z]: Point): Uint8Array {
  const inverse = invert(z);
  return bytesOf(mod(y * inverse) | ((mod(x * inverse) & 1n) << 255n));
}

/** SHA-512 of the parts, modulo L. */
export function challenge(...parts: readonly Uint8Array[]): bigint {
  const hash = createHash("sha512");
  for (const part of parts) hash.update(part);
  return mod(numberOf(hash.digest()), L);
}

/** A point of order 8, from which all of small order come: [L]Q for some Q that is not in the subgroup. */
export function ofOrderEight(): Point {
  for (let y = 2n; ; y++) {
    const point = pointWith(y);
    if (point === null) continue;
    const small = times(L, point);
    const [, fourY, fourZ] = times(4n, small);
    // Four times it is not the neutral point.
    if (mod(fourY - fourZ) !== 0n) return small;
  }
}

/** Every encoding that decodes to a point of small order: the eight proper ones, and those with y of p or more or with the sign of x = 0. */
export function smallOrderEncodings(): Uint8Array[] {
  const eighth = ofOrderEight();
  const found = new Map<string, Uint8Array>();
  for (let at = 0n; at < 8n; at++) {
    const proper = numberOf(encode(times(at, eighth)));
    const y = proper & (2n ** 255n - 1n);
    const signs = y === 1n || y === P - 1n ? [0n, 1n] : [proper >> 255n];
    for (const same of [y, y + P]) {
      if (same >= 2n ** 255n) continue;
      for (const sign of signs) {
        const bytes = bytesOf(same | (sign << 255n));
        found.set(bytes.toHex(), bytes);
      }
    }
  }
  return [...found.values()];
}

/** A signature by the secret scalar `a`, of the key `publicKey`, with `nonce`; the points of small order are added to R. */
export function signRaw(
  a: bigint,
  publicKey: Uint8Array,
  message: Uint8Array,
  nonce: bigint,
  small: Point,
): Uint8Array {
  const r = encode(add(times(nonce, BASE), small));
  const s = mod(nonce + challenge(r, publicKey, message) * a, L);
  return new Uint8Array([...r, ...bytesOf(s)]);
}
