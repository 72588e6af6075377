/** BLS12-381: points, ciphersuites, the forms, and finding the bad ones, over blst and over noble. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { bls12_381 } from "@noble/curves/bls12-381.js";
import {
  batchVerifyBLS,
  BLS_AUG,
  BLS_NUL,
  BLS_POP,
  packMessages,
  type BlsForm,
  type Item,
  type Reason,
} from "../../lib/index.ts";
import type { Params } from "../../lib/verify/contract.ts";
import { blsOver } from "../../lib/verify/schemes/bls.ts";
import { nativeBls } from "../../lib/verify/schemes/bls-native.ts";
import { blsKey, blsSecret, blsSignature, Bytes, items, reasonsOf, spoiled } from "./kit.ts";

// Slow where the cores are busy: big integers in JavaScript.
setDefaultTimeout(60_000);

const bytes = new Bytes("bls");
const secrets = Array.from({ length: 4 }, () => blsSecret(bytes));
const keys = secrets.map(blsKey);
const messages = secrets.map((_, at) => new Uint8Array(10 + at).fill(at));
const { G1, G2, longSignatures } = bls12_381;

const joined = (parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));
const summed = (signatures: readonly Uint8Array[]): Uint8Array =>
  longSignatures.aggregateSignatures(signatures.map((each) => G2.Point.fromBytes(each))).toBytes();

const keyAtInfinity = new Uint8Array(48).with(0, 0xc0);
const signatureAtInfinity = new Uint8Array(96).with(0, 0xc0);

/** The first point of the curve, by its last byte, that is not in the subgroup; compressed. */
function outside(length: 48 | 96): Uint8Array {
  const { Point } = length === 48 ? G1 : G2;
  for (let x = 1; x < 256; x++) {
    const encoded = new Uint8Array(length).with(0, 0x80).with(length - 1, x);
    try {
      Point.fromBytes(encoded);
    } catch (error) {
      if (String(error).includes("subgroup")) return encoded;
    }
  }
  throw new Error("there is no such point");
}

/** The point with the other y. */
const negated = (point: Uint8Array): Uint8Array => point.with(0, point[0]! ^ 0x20);

const native = await nativeBls();
const verifiers = [
  ["noble", blsOver(null)],
  ...(native === null ? [] : [["blst", blsOver(native)] as const]),
] as const;

describe.each(verifiers)("over %s", (_, verifier) => {
  const one = (item: Item, params: Partial<Params> = {}): Reason => reasonsOf(verifier, [item], params)[0]!;
  const good: Item = {
    publicKey: keys[0]!,
    message: messages[0]!,
    signature: blsSignature(messages[0]!, secrets[0]!, BLS_POP),
  };

  test("points must be in the subgroup and written in the one way", () => {
    expect(one(good)).toBe("valid");
    expect(one({ ...good, publicKey: outside(48) })).toBe("public-key");
    expect(one({ ...good, signature: outside(96) })).toBe("signature-encoding");
    expect(one({ ...good, publicKey: keyAtInfinity })).toBe("public-key");
    expect(one({ ...good, publicKey: keyAtInfinity, signature: signatureAtInfinity })).toBe("public-key");
    expect(one({ ...good, signature: signatureAtInfinity })).toBe("signature");
    expect(one({ ...good, publicKey: keyAtInfinity.with(47, 1) })).toBe("public-key");
    expect(one({ ...good, publicKey: keyAtInfinity.with(0, 0xe0) })).toBe("public-key");
    expect(one({ ...good, signature: signatureAtInfinity.with(95, 1) })).toBe("signature-encoding");
    expect(one({ ...good, signature: signatureAtInfinity.with(0, 0xe0) })).toBe("signature-encoding");
    // Without the bit that says compressed; all zeros; x that is not below p.
    expect(one({ ...good, publicKey: good.publicKey.with(0, good.publicKey[0]! & 0x7f) })).toBe("public-key");
    expect(one({ ...good, publicKey: new Uint8Array(48) })).toBe("public-key");
    expect(one({ ...good, publicKey: new Uint8Array(48).fill(255).with(0, 0x9f) })).toBe("public-key");
    expect(one({ ...good, signature: new Uint8Array(96) })).toBe("signature-encoding");
    expect(one({ ...good, signature: new Uint8Array(96).fill(255).with(0, 0x9f) })).toBe(
      "signature-encoding",
    );
    expect(one({ ...good, signature: negated(good.signature) })).toBe("signature");
    expect(one({ ...good, publicKey: negated(good.publicKey) })).toBe("signature");
    expect(one({ ...good, publicKey: joined([keys[0]!, keys[1]!]) })).toBe("public-key-length");
  });

  test("signatures that are bad in ways that cancel out do not pass together", () => {
    const pair = items("bls12-381", 2);
    const [first, second] = pair.map(({ signature }) => G2.Point.fromBytes(signature));
    const moved = [first!.add(G2.Point.BASE), second!.add(G2.Point.BASE.negate())];
    const batch = pair.map((item, at) => ({ ...item, signature: moved[at]!.toBytes() }));
    expect(reasonsOf(verifier, batch)).toEqual(["signature", "signature"]);
    const swapped = pair.map((item, at) => ({ ...item, signature: pair[1 - at]!.signature }));
    expect(reasonsOf(verifier, swapped)).toEqual(["signature", "signature"]);
  });

  test("the bad ones are found, wherever they are", () => {
    const batch = items("bls12-381", 12);
    for (const bad of [[0], [11], [5], [0, 11], [3, 4], [0, 1, 2, 3, 4, 5], [1, 3, 5, 7, 9, 11]]) {
      const some = batch.map((item, at) => (bad.includes(at) ? spoiled(item) : item));
      const expected = batch.map((_, at) => (bad.includes(at) ? "signature" : "valid"));
      expect(reasonsOf(verifier, some)).toEqual(expected as Reason[]);
    }
  });

  test("signatures of the same few messages are told apart", () => {
    const shared = [messages[0]!, messages[1]!, messages[0]!.slice(), new Uint8Array(0)];
    const batch = secrets.flatMap((secret, at) =>
      shared.map((message) => ({
        publicKey: keys[at]!,
        message,
        signature: blsSignature(message, secret, BLS_POP),
      })),
    );
    expect(new Set(reasonsOf(verifier, batch))).toEqual(new Set(["valid"]));
    const one = batch.filter(({ message }) => message.length === messages[0]!.length);
    expect(new Set(reasonsOf(verifier, one))).toEqual(new Set(["valid"]));
    // Two signatures of one message changed places: their plain sum is right, and neither is valid.
    const [a, b] = [one[0]!, one[2]!];
    const swapped = one.with(0, { ...a, signature: b.signature }).with(2, { ...b, signature: a.signature });
    const expected = one.map((_, at) => (at === 0 || at === 2 ? "signature" : "valid"));
    expect(reasonsOf(verifier, swapped)).toEqual(expected as Reason[]);
    const spoilt = batch.map((item, at) => (at === 6 ? { ...item, message: messages[2]! } : item));
    expect(
      reasonsOf(verifier, spoilt)
        .map((reason, at) => (reason === "valid" ? -1 : at))
        .filter((at) => at >= 0),
    ).toEqual([6]);
    // Keys that cancel out, with signatures that do: each is valid by itself.
    const opposite = { ...a, publicKey: negated(a.publicKey), signature: negated(a.signature) };
    expect(reasonsOf(verifier, [a, opposite])).toEqual(["valid", "valid"]);
  });

  test("a message of any length, one of them empty", () => {
    for (const message of [new Uint8Array(0), new Uint8Array(3000)])
      expect(one({ ...good, message, signature: blsSignature(message, secrets[0]!, BLS_POP) })).toBe("valid");
  });

  test("a signature belongs to its ciphersuite", () => {
    const tags = [BLS_POP, BLS_NUL, BLS_AUG, "SOME_OTHER_TAG"];
    for (const signedFor of tags)
      for (const ciphersuite of tags) {
        // What is signed under augmentation is the key and then the message.
        const message = signedFor === BLS_AUG ? joined([good.publicKey, good.message]) : good.message;
        const signature = blsSignature(message, secrets[0]!, signedFor);
        const expected = signedFor === ciphersuite ? "valid" : "signature";
        expect(one({ ...good, signature }, { ciphersuite })).toBe(expected);
      }
  });

  const form = (name: BlsForm, ciphersuite = BLS_POP): Partial<Params> => ({ form: name, ciphersuite });

  test("same-message: many keys, one aggregate", () => {
    const message = messages[1]!;
    const signature = summed(secrets.map((secret) => blsSignature(message, secret, BLS_POP)));
    const item: Item = { publicKey: joined(keys), message, signature };
    const params = form("same-message");
    expect(one(item, params)).toBe("valid");
    expect(one({ ...item, publicKey: joined([...keys].reverse()) }, params)).toBe("valid");
    expect(one({ ...item, publicKey: joined(keys.slice(1)) }, params)).toBe("signature");
    expect(one({ ...item, publicKey: joined([...keys, keys[0]!]) }, params)).toBe("signature");
    expect(one({ ...item, publicKey: joined([...keys, keyAtInfinity]) }, params)).toBe("public-key");
    expect(one({ ...item, publicKey: new Uint8Array(0) }, params)).toBe("public-key-length");
    expect(one({ ...item, publicKey: joined(keys).subarray(1) }, params)).toBe("public-key-length");
    expect(one(good, params)).toBe("valid");
    // Keys that cancel each other out: their sum is no key, whatever the signature.
    const cancelling = joined([keys[0]!, negated(keys[0]!)]);
    const empty = { publicKey: cancelling, message, signature: signatureAtInfinity };
    expect(one(empty, params)).toBe("public-key");
    const batch = [item, spoiled(item), empty, good, { ...item, message: messages[2]! }];
    expect(reasonsOf(verifier, batch, params)).toEqual([
      "valid",
      "signature",
      "public-key",
      "valid",
      "signature",
    ]);
  });

  test("aggregate: as many messages as keys", () => {
    const signature = summed(secrets.map((secret, at) => blsSignature(messages[at]!, secret, BLS_POP)));
    const item: Item = { publicKey: joined(keys), message: packMessages(messages), signature };
    const params = form("aggregate");
    expect(one(item, params)).toBe("valid");
    expect(one({ ...item, publicKey: joined([...keys].reverse()) }, params)).toBe("signature");
    expect(one({ ...item, publicKey: joined(keys.slice(1)) }, params)).toBe("message-length");
    expect(one({ ...item, message: packMessages(messages.slice(1)) }, params)).toBe("message-length");
    expect(one({ ...item, message: Uint8Array.from([...item.message, 0]) }, params)).toBe("message-length");
    expect(one({ ...item, message: item.message.with(3, 255) }, params)).toBe("message-length");
    expect(one({ ...item, message: new Uint8Array(0) }, params)).toBe("message-length");
    // The order of reasons: the key's length, the messages, the signature's length.
    const short = { ...item, signature: item.signature.subarray(1) };
    expect(one(short, params)).toBe("signature-length");
    expect(one({ ...short, message: packMessages(messages.slice(1)) }, params)).toBe("message-length");
    expect(
      one({ ...short, publicKey: item.publicKey.subarray(1), message: item.message.subarray(1) }, params),
    ).toBe("public-key-length");
    expect(one({ ...item, signature: signatureAtInfinity }, params)).toBe("signature");
    expect(one({ ...item, publicKey: joined([keyAtInfinity, ...keys.slice(1)]) }, params)).toBe("public-key");
    expect(reasonsOf(verifier, [item, spoiledMessage(item), item], params)).toEqual([
      "valid",
      "signature",
      "valid",
    ]);
  });

  test("aggregate: what the ciphersuites say of equal messages", () => {
    const twice = [messages[0]!, messages[0]!];
    const two = joined(keys.slice(0, 2));
    for (const ciphersuite of [BLS_POP, BLS_NUL, BLS_AUG]) {
      const signed = twice.map((message, at) =>
        ciphersuite === BLS_AUG ? joined([keys[at]!, message]) : message,
      );
      const signature = summed(signed.map((message, at) => blsSignature(message, secrets[at]!, ciphersuite)));
      const item: Item = { publicKey: two, message: packMessages(twice), signature };
      expect(one(item, form("aggregate", ciphersuite))).toBe(ciphersuite === BLS_NUL ? "signature" : "valid");
    }
    // Keys that cancel out over one message: the draft takes infinity for their signature.
    const item: Item = {
      publicKey: joined([keys[0]!, negated(keys[0]!)]),
      message: packMessages(twice),
      signature: signatureAtInfinity,
    };
    expect(one(item, form("aggregate"))).toBe("valid");
  });
});

/** The last byte of the last message changed; the lengths stay right. */
function spoiledMessage(item: Item): Item {
  return { ...item, message: item.message.with(-1, item.message.at(-1)! ^ 1) };
}

test("the forms through the public call, and the form that a ciphersuite does not have", async () => {
  const message = messages[3]!;
  const signature = summed(secrets.map((secret) => blsSignature(message, secret, BLS_POP)));
  const item: Item = { publicKey: joined(keys), message, signature };
  expect(await batchVerifyBLS([item, item], { form: "same-message" })).toEqual([true, true]);
  for (const ciphersuite of [BLS_NUL, BLS_AUG])
    expect(batchVerifyBLS([item], { form: "same-message", ciphersuite })).rejects.toThrow(
      "needs proofs of possession",
    );
});
