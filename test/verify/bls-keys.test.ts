/** Decoded keys that are kept: how many, which, and that nothing else is taken for one of them. */
import { describe, expect, test } from "bun:test";
import { REASONS } from "../../lib/index.ts";
import { checkVerifySettings } from "../../lib/verify/registry.ts";
import type { BlsEngine } from "../../lib/verify/schemes/bls-engine.ts";
import { blsKeysSetting, rememberingKeys } from "../../lib/verify/schemes/bls-keys.ts";
import { blsOver } from "../../lib/verify/schemes/bls.ts";
import { nativeBls } from "../../lib/verify/schemes/bls-native.ts";
import { flipped, items, reasonsOf } from "./kit.ts";

/** Takes any bytes for a key but those that begin with 0, and counts how often it is asked. */
function counting(): { engine: BlsEngine<string, never>; asked: () => number } {
  let asked = 0;
  const no = (): never => {
    throw new Error("not asked for here");
  };
  const engine: BlsEngine<string, never> = {
    library: "a double that decodes nothing",
    key(bytes) {
      asked++;
      return bytes[0] === 0 ? null : Buffer.from(bytes).toString("hex");
    },
    signature: no,
    sum: no,
    verify: no,
    verifyAll: no,
    aggregate: no,
  };
  return { engine, asked: () => asked };
}

const named = (at: number): Uint8Array => new Uint8Array(48).fill(at);

describe("decoded keys", () => {
  test("are decoded once while they are asked for", () => {
    const { engine, asked } = counting();
    const { key } = rememberingKeys(engine, 4);
    for (let round = 0; round < 3; round++)
      for (const at of [1, 2]) expect(key(named(at))).toBe(Buffer.from(named(at)).toString("hex"));
    expect(asked()).toBe(2);
    // Asked for in between, the first outlives any number of others.
    for (let at = 3; at < 200; at++) {
      key(named(at));
      key(named(1));
    }
    expect(asked()).toBe(2 + 197);
    key(named(2));
    expect(asked()).toBe(2 + 197 + 1);
  });

  test("are no more than the setting says, and none with 0", () => {
    const { engine, asked } = counting();
    const { key } = rememberingKeys(engine, 10);
    for (let at = 1; at <= 200; at++) key(named(at));
    let kept = 0;
    for (let at = 200; at > 0; at--) {
      const before = asked();
      key(named(at));
      if (asked() === before) kept++;
      else break;
    }
    expect(kept).toBeGreaterThanOrEqual(5);
    expect(kept).toBeLessThanOrEqual(10);
    expect(rememberingKeys(engine, 0).key).toBe(engine.key);
    for (const most of [1, 2, 3]) {
      const { engine, asked } = counting();
      const { key } = rememberingKeys(engine, most);
      for (let at = 1; at <= 9; at++) key(named(at));
      for (let at = 9; at > 9 - most; at--) key(named(at));
      key(named(9 - most));
      // The last one at least, and no more than there may be.
      expect(asked()).toBeGreaterThanOrEqual(10);
      expect(asked()).toBeLessThan(9 + 1 + most);
    }
  });

  test("that are none are looked at each time", () => {
    const { engine, asked } = counting();
    const { key } = rememberingKeys(engine, 4);
    for (let round = 0; round < 3; round++) expect(key(named(0))).toBeNull();
    expect(asked()).toBe(3);
  });

  test("are kept by the bytes that were decoded, though these change meanwhile", () => {
    const shared = new Uint8Array(new SharedArrayBuffer(48)).fill(7);
    const { engine } = counting();
    const { key } = rememberingKeys(
      {
        ...engine,
        key(bytes) {
          shared.fill(9);
          return engine.key(bytes);
        },
      },
      4,
    );
    expect(key(shared)).toBe(Buffer.from(named(7)).toString("hex"));
    expect(key(named(7))).toBe(Buffer.from(named(7)).toString("hex"));
    expect(key(named(9))).toBe(Buffer.from(named(9)).toString("hex"));
  });

  test("change no verdict", async () => {
    const [good, other] = items("bls12-381", 2) as [ReturnType<typeof items>[0], ReturnType<typeof items>[0]];
    const batch = [
      good,
      { ...good, publicKey: other.publicKey },
      other,
      { ...good, publicKey: flipped(good.publicKey, 5) },
      { ...good, publicKey: flipped(good.publicKey, 383) },
    ];
    const forgetful = reasonsOf(blsOver(await nativeBls(), 0), batch);
    expect(forgetful.slice(0, 3)).toEqual(["valid", "signature", "valid"]);
    for (const native of [await nativeBls(), null]) {
      const verifier = blsOver(native, 4);
      for (let round = 0; round < 3; round++) expect(reasonsOf(verifier, batch)).toEqual(forgetful);
    }
    expect(forgetful.every((reason) => REASONS.includes(reason))).toBe(true);
  });

  test("the setting", () => {
    expect(blsKeysSetting({})).toBe(8_192);
    expect(blsKeysSetting({ ZAP_VERIFY_BLS_KEYS: "0" })).toBe(0);
    for (const value of ["-1", "many", "1048577", "1.5"]) {
      expect(() => blsKeysSetting({ ZAP_VERIFY_BLS_KEYS: value })).toThrow("ZAP_VERIFY_BLS_KEYS");
      expect(() => checkVerifySettings({ ZAP_VERIFY_BLS_KEYS: value })).toThrow("ZAP_VERIFY_BLS_KEYS");
    }
  });
});
