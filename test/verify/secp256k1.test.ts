/** secp256k1: encodings, ranges, low S, keys and hashes, the same over every library. */
import { describe, expect, test } from "bun:test";
import { secp256k1 as curve } from "@noble/curves/secp256k1.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { keccak_256 } from "@noble/hashes/sha3.js";
import type { Item, Reason } from "../../lib/index.ts";
import type { Params } from "../../lib/verify/contract.ts";
import { secp256k1Over } from "../../lib/verify/schemes/secp256k1.ts";
import {
  nativeSecp256k1,
  nobleSecp256k1,
  wasmSecp256k1,
} from "../../lib/verify/schemes/secp256k1-engines.ts";
import { reasonsOf } from "./kit.ts";
import { casesOf, hasVectors, wycheproof } from "./vectors.ts";

const N = curve.Point.CURVE().n;
const secret = new Uint8Array(32).fill(3);
const digest = new Uint8Array(32).fill(9);
const compressed = curve.getPublicKey(secret, true);
const uncompressed = curve.getPublicKey(secret, false);
const compact = curve.sign(digest, secret, { prehash: false });
const r = fromBig(compact.subarray(0, 32));
const s = fromBig(compact.subarray(32));
const good: Item = { publicKey: compressed, message: digest, signature: compact };

function fromBig(bytes: Uint8Array): bigint {
  return BigInt(`0x${bytes.toHex()}`);
}

function toBig(value: bigint): Uint8Array {
  return Uint8Array.fromHex(value.toString(16).padStart(64, "0"));
}

function pair(first: bigint, second: bigint): Uint8Array {
  return Uint8Array.from([...toBig(first), ...toBig(second)]);
}

/** A DER integer, with `extra` bytes in front. */
function integer(value: bigint, extra: number[] = []): number[] {
  const hex = value.toString(16);
  const bytes = [...Uint8Array.fromHex(hex.length % 2 === 0 ? hex : `0${hex}`)];
  const body = [...extra, ...(bytes[0]! >= 0x80 ? [0] : []), ...bytes];
  return [2, body.length, ...body];
}

function sequence(...parts: number[][]): Uint8Array {
  const body = parts.flat();
  return Uint8Array.from([0x30, body.length, ...body]);
}

const engines = [nativeSecp256k1(), await wasmSecp256k1(), nobleSecp256k1].filter(
  (engine) => engine !== null,
);

test("libsecp256k1 loads as WebAssembly everywhere, and as an addon where it is built for the platform", () => {
  const names = engines.map(({ library }) => library);
  expect(names).toContain("libsecp256k1 (WebAssembly)");
  if (`${process.platform}-${process.arch}` === "linux-x64") expect(names).toContain("libsecp256k1 (native)");
});

describe.each(engines.map((engine) => [engine.library, engine] as const))("%s", (_, engine) => {
  const verifier = secp256k1Over(engine);
  const reason = (change: Partial<Item>, params: Partial<Params> = {}): Reason =>
    reasonsOf(verifier, [{ ...good, ...change }], params)[0]!;

  test("keys of 33 and 65 bytes; none of the hybrid form, none off the curve", () => {
    expect(reason({})).toBe("valid");
    expect(reason({ publicKey: uncompressed })).toBe("valid");
    for (const first of [0, 1, 5, 6, 7, 255]) {
      expect(reason({ publicKey: uncompressed.with(0, first) })).toBe("public-key");
      expect(reason({ publicKey: compressed.with(0, first) })).toBe("public-key");
    }
    expect(reason({ publicKey: compressed.with(0, 4) })).toBe("public-key");
    expect(reason({ publicKey: uncompressed.with(0, 2) })).toBe("public-key");
    expect(reason({ publicKey: uncompressed.with(64, uncompressed[64]! ^ 1) })).toBe("public-key");
    const p = curve.Point.CURVE().p;
    for (const x of [0n, 5n, p, p + 1n, 2n ** 256n - 1n])
      expect(reason({ publicKey: Uint8Array.from([2, ...toBig(x)]) })).toBe("public-key");
    // x = 1 is on the curve; x = p + 1 is the same modulo p, and no way to write it.
    expect(reason({ publicKey: Uint8Array.from([2, ...toBig(1n)]) })).toBe("signature");
    expect(reason({ publicKey: new Uint8Array(33) })).toBe("public-key");
    expect(reason({ publicKey: compressed.subarray(1) })).toBe("public-key-length");
    expect(reason({ publicKey: new Uint8Array(64) })).toBe("public-key-length");
  });

  test("r and s from 1 to n - 1", () => {
    for (const signature of [pair(0n, s), pair(r, 0n), pair(N, s), pair(r, N), pair(2n ** 256n - 1n, s)]) {
      expect(reason({ signature })).toBe("signature-encoding");
      expect(reason({ signature }, { lowS: false })).toBe("signature-encoding");
    }
    expect(reason({ signature: pair(N - 1n, s) })).toBe("signature");
    expect(reason({ signature: pair(1n, 1n) })).toBe("signature");
  });

  test("low S, unless it is not asked for", () => {
    const signature = pair(r, N - s);
    expect(reason({ signature })).toBe("signature-encoding");
    expect(reason({ signature }, { lowS: false })).toBe("valid");
    expect(reason({}, { lowS: false })).toBe("valid");
    const half = (N - 1n) / 2n;
    expect(reason({ signature: pair(r, half) })).toBe("signature");
    expect(reason({ signature: pair(r, half + 1n) })).toBe("signature-encoding");
    expect(reason({ signature: pair(r, half + 1n) }, { lowS: false })).toBe("signature");
  });

  test("DER, in the one way to write it", () => {
    const der = sequence(integer(r), integer(s));
    const as = (signature: Uint8Array): Reason => reason({ signature }, { encoding: "der" });
    expect(as(der)).toBe("valid");
    expect(as(sequence(integer(r), integer(N - s)))).toBe("signature-encoding");
    const wrong: Uint8Array[] = [
      der.with(0, 0x31),
      der.with(1, der[1]! + 1),
      der.with(2, 3),
      sequence(integer(r, [0]), integer(s)),
      sequence(integer(r), integer(s, [0])),
      sequence(integer(r), integer(s), [0]),
      Uint8Array.from([...der, 0]),
      der.subarray(0, -1),
      sequence(integer(r)),
      sequence(integer(r), [2, 0]),
      sequence([2, 32, ...toBig(r | (1n << 255n))], integer(s)),
      sequence([2, 33, 1, ...toBig(r)], integer(s)),
      sequence(integer(N), integer(s)),
      sequence([2, 1, 0], integer(s)),
      Uint8Array.from([0x30, 0x81, der.length - 2, ...der.subarray(2)]),
      Uint8Array.from([0x30, 0x80, ...der.subarray(2), 0, 0]),
    ];
    for (const each of wrong) {
      const why = each.length < 8 || each.length > 72 ? "signature-length" : "signature-encoding";
      expect([each.toHex(), as(each)]).toEqual([each.toHex(), why]);
    }
    expect(as(sequence(integer(1n), integer(1n)))).toBe("signature");
    expect(as(compact)).toBe("signature-encoding");
    expect(as(new Uint8Array(0))).toBe("signature-length");
    expect(as(new Uint8Array(73))).toBe("signature-length");
  });

  test("a digest of 32 bytes, or a message with a hash", () => {
    expect(reason({ message: digest.subarray(1) })).toBe("message-length");
    expect(reason({ message: new Uint8Array(33) })).toBe("message-length");
    for (const [name, hash] of [
      ["sha256", sha256],
      ["keccak-256", keccak_256],
    ] as const) {
      for (const message of [new Uint8Array(0), new Uint8Array(32).fill(1), new Uint8Array(500).fill(2)]) {
        const signature = curve.sign(hash(message), secret, { prehash: false });
        expect(reason({ message, signature }, { digest: name })).toBe("valid");
        expect(reason({ message: Uint8Array.from([...message, 0]), signature }, { digest: name })).toBe(
          "signature",
        );
      }
    }
    // Known answers, so that no two hashes are mixed up.
    expect(keccak_256(new Uint8Array(0)).toHex()).toStartWith("c5d2460186f7233c");
  });

  test.skipIf(!hasVectors)("the official vectors", async () => {
    const cases = (await wycheproof("ecdsa_secp256k1_sha256_test")).flatMap(casesOf);
    const reasons = reasonsOf(verifier, cases, { digest: "sha256", encoding: "der", lowS: false });
    expect(reasons.map((each) => each === "valid")).toEqual(cases.map(({ valid }) => valid));
  });
});
