/** The Ed25519 kernel, compiled for the host in both of its representations, against `node:crypto` and the official vectors. */
import { dlopen } from "bun:ffi";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { baseTable } from "../../scripts/ed25519-tables.ts";
import { CODE, type PackedBatch } from "../../lib/verify/contract.ts";
import { COMPILER, IN_CI, ROOT, Workshop } from "../native/toolchain.ts";
import {
  cornerItems,
  differences,
  lengthItems,
  nodeCodes,
  packed,
  randomItems,
  VALID,
} from "./ed25519-cases.ts";
import { hasVectors, whyNot, wycheproof, casesOf } from "./vectors.ts";

const SOAK = process.env["ZAP_TEST_SOAK"] === "1";
const RANDOM = SOAK ? 100_000 : 2_000;

test("the table of multiples is what the script makes", () => {
  expect(readFileSync(join(ROOT, "shim/kernels/ed25519/base_table.h"), "utf8")).toBe(baseTable());
});

const missing = COMPILER === null && !IN_CI;
describe.skipIf(missing)(`the kernel on the host${missing ? " (skipped: no C compiler here)" : ""}`, () => {
  let shop: Workshop;
  let kernels: ReturnType<typeof open>;

  const open = (path: string) =>
    dlopen(path, {
      ed25519_five: { args: ["ptr", "u64", "ptr", "ptr", "u32"], returns: "void" },
      ed25519_ten: { args: ["ptr", "u64", "ptr", "ptr", "u32"], returns: "void" },
    }).symbols;

  beforeAll(async () => {
    shop = new Workshop();
    const sources = ["five", "ten"].map((name) => join(ROOT, `test/native/ed25519_${name}.c`));
    kernels = open(await shop.link("libed25519.so", ["-shared", ...sources], ["-O2"]));
  }, 120_000);
  afterAll(() => shop[Symbol.dispose]());

  function codesOf(name: "ed25519_five" | "ed25519_ten", batch: PackedBatch): Uint8Array {
    const codes = new Uint8Array(batch.count).fill(0xee);
    // Of no bytes there is no address.
    const bytes = batch.bytes.length === 0 ? new Uint8Array(1) : batch.bytes;
    kernels[name](bytes, batch.bytes.length, batch.table, codes, batch.count);
    return codes;
  }

  function expectSame(batch: PackedBatch): Uint8Array {
    const wanted = nodeCodes(batch);
    for (const name of ["ed25519_five", "ed25519_ten"] as const)
      expect([name, differences(codesOf(name, batch), wanted)]).toEqual([name, []]);
    return wanted;
  }

  test(`agrees with node:crypto on ${RANDOM.toLocaleString("en")} random and spoilt items`, () => {
    const STEP = 2_000;
    const seen = new Set<number>();
    for (let at = 0; at < RANDOM; at += STEP)
      for (const code of expectSame(packed(randomItems(STEP, 1 + at, SOAK ? 600 : 300)))) seen.add(code);
    expect([...seen].sort()).toEqual([
      CODE.signature,
      CODE.valid,
      CODE.publicKeyLength,
      CODE.signatureLength,
      CODE.signatureEncoding,
    ]);
  }, 600_000);

  test("agrees with it on small and mixed orders, odd encodings, and S at its bounds", () => {
    const batch = packed(cornerItems());
    const valid = expectSame(batch).filter((code) => code === VALID).length;
    // Both are many: neither may come out for want of the other.
    expect(valid).toBeGreaterThan(50);
    expect(batch.count - valid).toBeGreaterThan(500);
  }, 60_000);

  test("hashes messages of any length", () => {
    expect(expectSame(packed(lengthItems())).every((code) => code === VALID)).toBe(true);
  });

  test("takes parts in any order, shared and overlapping, and refuses what lies outside", () => {
    const { bytes, table } = packed(randomItems(50, 5));
    const rows: number[] = [];
    for (let at = 0; at < 50; at++) {
      const row = [...table.subarray(6 * at, 6 * at + 6)];
      rows.push(...row);
      for (const [part, by] of [
        [0, bytes.length],
        [2, bytes.length],
        [4, bytes.length],
        [0, 0xffff_ffff],
        [3, 0xffff_ffff],
        [5, 0xffff_ffff],
        [2, 1],
      ] as const) {
        const moved = [...row];
        moved[part] = Math.min(0xffff_ffff, moved[part]! + by);
        rows.push(...moved);
      }
    }
    const wanted = expectSame({ bytes, table: Uint32Array.from(rows), count: rows.length / 6 });
    expect(wanted.filter((code) => code === CODE.item).length).toBeGreaterThan(200);
    expect(expectSame({ bytes: new Uint8Array(0), table: new Uint32Array(6), count: 1 })[0]).toBe(3);
  });

  test("refuses a message of 2 GiB, as every backend does", () => {
    // Nobody reads it: its memory is never there.
    const bytes = new Uint8Array(new SharedArrayBuffer(2 ** 31 + 96));
    const table = Uint32Array.of(
      0,
      32,
      96,
      2 ** 31,
      32,
      64,
      0,
      32,
      96,
      2 ** 31,
      32,
      63,
      0,
      31,
      96,
      2 ** 31,
      32,
      64,
    );
    const codes = expectSame({ bytes, table, count: 3 });
    expect([...codes]).toEqual([CODE.messageLength, CODE.messageLength, CODE.publicKeyLength]);
  });

  test.skipIf(!hasVectors)(`gives the official verdicts${whyNot}`, async () => {
    let count = 0;
    for (const group of await wycheproof("ed25519_test")) {
      const cases = casesOf(group);
      const wanted = cases.map(({ valid, vector }) => `${vector.tcId}: ${valid}`);
      for (const name of ["ed25519_five", "ed25519_ten"] as const) {
        const codes = codesOf(name, packed(cases));
        expect(cases.map(({ vector }, at) => `${vector.tcId}: ${codes[at] === VALID}`)).toEqual(wanted);
      }
      expectSame(packed(cases));
      count += cases.length;
    }
    expect(count).toBeGreaterThan(100);
  });
});
