/** Ed25519 in the corners where libraries differ, against the rules written out in `ed25519-rules.ts`. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { batchVerifyEd25519, type Item } from "../../lib/index.ts";
import { ed25519 } from "../../lib/verify/schemes/ed25519.ts";
import {
  add,
  BASE,
  challenge,
  decode,
  encode,
  isValid,
  L,
  multiply,
  oddEncodings,
  smallOrderGenerator,
  toLittle,
} from "./ed25519-rules.ts";
import { Bytes, items, mutated, reasonsOf } from "./kit.ts";

// Slow where the cores are busy: big integers in JavaScript.
setDefaultTimeout(60_000);

function signature(r: Uint8Array, s: bigint): Uint8Array {
  return Uint8Array.from([...r, ...toLittle(s)]);
}

function agree(batch: readonly Item[]): number {
  const answers = reasonsOf(ed25519, batch).map((reason) => reason === "valid");
  const expected = batch.map(({ publicKey, message, signature }) => isValid(publicKey, message, signature));
  expect(answers).toEqual(expected);
  return answers.filter(Boolean).length;
}

describe("Ed25519", () => {
  test("keys and R of small order, and with y not below p", () => {
    const odd = oddEncodings();
    const message = new Uint8Array([7]);
    const batch = odd.flatMap((publicKey) =>
      odd.map((r) => ({ publicKey, message, signature: signature(r, 0n) })),
    );
    // Those with a small order are valid where the equation holds for the bytes as they are; nothing refuses them.
    expect(agree(batch)).toBeGreaterThan(10);
  });

  test("a key with a part of small order is valid where the equation holds without a cofactor", () => {
    const small = smallOrderGenerator();
    const batch: Item[] = [];
    for (let i = 0n; i < 24n; i++) {
      const secret = 12345n + i;
      const publicKey = encode(add(multiply(secret, BASE), small));
      const r = encode(multiply(777n + i, BASE));
      const message = toLittle(i);
      const s = (777n + i + challenge(r, publicKey, message) * secret) % L;
      batch.push({ publicKey, message, signature: signature(r, s) });
    }
    const valid = agree(batch);
    expect(valid).toBeGreaterThan(0);
    expect(valid).toBeLessThan(batch.length);
  });

  test("S must be below the order", async () => {
    const publicKey = new Uint8Array(32);
    publicKey[0] = 1;
    const message = new Uint8Array(3);
    const values = [0n, 1n, L - 1n, L, L + 1n, 2n ** 252n, 2n ** 253n, 2n ** 255n, 2n ** 256n - 1n];
    // The key is the neutral element: the equation is R = S times the base point.
    const batch = values.map((s) => {
      const r = encode(multiply(s % L, BASE));
      return { publicKey, message, signature: signature(r, s) };
    });
    const verdicts = await batchVerifyEd25519(batch, { reasons: true });
    expect(verdicts.map(({ reason }) => reason)).toEqual(
      values.map((s) => (s < L ? "valid" : "signature-encoding")),
    );
  });

  test("a key that is no point is a signature that does not hold", async () => {
    let y = 2n;
    while (decode(toLittle(y)) !== null) y++;
    const [item] = items("ed25519", 1) as [Item];
    const verdicts = await batchVerifyEd25519([{ ...item, publicKey: toLittle(y) }], { reasons: true });
    expect(verdicts).toEqual([{ valid: false, reason: "signature" }]);
  });

  test("mutated items", () => {
    const bytes = new Bytes("ed25519 rules");
    const batch = items("ed25519", 60, 20).map((item) => mutated(item, bytes));
    expect(agree(batch)).toBeGreaterThan(5);
  });
});
