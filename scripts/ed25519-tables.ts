/**
 * Writes `shim/kernels/ed25519/base_table.h`: the multiples of Ed25519's base point that the kernel adds. By the affine addition law (RFC 8032,
 * section 5.1.4, without its coordinates), with whole numbers, and so by another way than the kernel's own.
 *
 *   bun scripts/ed25519-tables.ts            prints the file
 *   bun scripts/ed25519-tables.ts --write    writes it
 */
import { join } from "node:path";

const P = 2n ** 255n - 19n;
const COUNT = 128;

const mod = (value: bigint): bigint => ((value % P) + P) % P;

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let square = mod(base), left = exponent; left > 0n; left >>= 1n, square = mod(square * square))
    if (left & 1n) result = mod(result * square);
  return result;
}

const invert = (value: bigint): bigint => power(value, P - 2n);

export const D = mod(-121665n * invert(121666n));

export interface Point {
  readonly x: bigint;
  readonly y: bigint;
}

/** x from y, the even one. */
export function pointOf(y: bigint): Point {
  const square = mod((y * y - 1n) * invert(D * y * y + 1n));
  let x = power(square, (P + 3n) / 8n);
  if (mod(x * x) !== square) x = mod(x * power(2n, (P - 1n) / 4n));
  return { x: x & 1n ? P - x : x, y };
}

export const BASE: Point = pointOf(mod(4n * invert(5n)));

export function add(one: Point, other: Point): Point {
  const both = mod(D * one.x * other.x * one.y * other.y);
  return {
    x: mod((one.x * other.y + one.y * other.x) * invert(1n + both)),
    y: mod((one.y * other.y + one.x * other.x) * invert(1n - both)),
  };
}

function words(value: bigint): string {
  return Array.from(
    { length: 8 },
    (_, at) => `0x${((value >> BigInt(32 * at)) & 0xffff_ffffn).toString(16).padStart(8, "0")}`,
  ).join(", ");
}

/** The text of `base_table.h`. */
export function baseTable(): string {
  const rows: string[] = [];
  for (let at = 0, point = BASE; at < COUNT; at++, point = add(point, BASE)) {
    const { x, y } = point;
    const parts = [mod(y + x), mod(y - x), mod(2n * D * x * y)].map((value) => `     ${words(value)}`);
    rows.push(`    {${parts.join(",\n").trimStart()}}`);
  }
  return [
    "/* Made by scripts/ed25519-tables.ts; not to be changed by hand. [1]B to [128]B: y + x, y - x, 2 d x y of each, in little-endian words. */",
    "#ifndef ZAP_ED25519_BASE_TABLE_H",
    "#define ZAP_ED25519_BASE_TABLE_H",
    "",
    '#include "words.h"',
    "",
    `static const uint32_t base_multiples[${COUNT}][24] = {`,
    rows.join(",\n"),
    "};",
    "",
    "#endif",
    "",
  ].join("\n");
}

if (import.meta.main) {
  const text = baseTable();
  if (!process.argv.includes("--write")) process.stdout.write(text);
  else await Bun.write(join(import.meta.dir, "..", "shim/kernels/ed25519/base_table.h"), text);
}
