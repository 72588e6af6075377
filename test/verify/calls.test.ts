/** The calls themselves: what they take and refuse, packing, backends, signals. */
import { afterEach, describe, expect, test } from "bun:test";
import {
  batchVerify,
  batchVerifyBLS,
  batchVerifyEd25519,
  batchVerifyMLDSA,
  batchVerifySecp256k1,
  batchVerifySLHDSA,
  ConfigError,
  LimitError,
  NotAvailableError,
  pack,
  packMessages,
  REASONS,
  SCHEMES,
  verifyBackends,
  type Item,
  type Verdict,
} from "../../lib/index.ts";
import { packing } from "../../lib/verify/batch.ts";
import { CODE, type Backend, type Job } from "../../lib/verify/contract.ts";
import { checkParams } from "../../lib/verify/options.ts";
import { chooseBackend, wantedBackend } from "../../lib/verify/registry.ts";
import { items } from "./kit.ts";

/** A call with what the types forbid. */
const loose = batchVerify as (scheme: unknown, batch: unknown, options?: unknown) => Promise<unknown>;
const good = items("ed25519", 4);

describe("what is refused", () => {
  test("a scheme that there is not", () => {
    for (const scheme of ["ed448", "ED25519", "", undefined, null, 3, {}, "toString"])
      expect(loose(scheme, [])).rejects.toThrow(ConfigError);
    expect(loose("rsa", [])).rejects.toThrow(
      'no signature scheme is named "rsa" here; there are ed25519, secp',
    );
    const any = batchVerifyMLDSA as (scheme: string, batch: Item[]) => Promise<unknown>;
    expect(any("ed25519", [])).rejects.toThrow("there are ml-dsa-44, ml-dsa-65, ml-dsa-87");
    const other = batchVerifySLHDSA as (scheme: string, batch: Item[]) => Promise<unknown>;
    expect(other("ml-dsa-44", [])).rejects.toThrow("there are slh-dsa-sha2-128s");
  });

  test("a batch that is none", () => {
    const bytes = new Uint8Array(100);
    const table = new Uint32Array(6);
    const none = [
      ...[undefined, null, 7, "text", {}, bytes, new Map(), () => 1],
      ...[
        { bytes, table },
        { bytes, count: 1 },
        { table, count: 1 },
        { bytes, table, count: 2 },
      ],
      ...[
        { bytes, table, count: -1 },
        { bytes, table, count: 0.5 },
        { bytes, table, count: NaN },
      ],
      ...[
        { bytes, table: [0, 0, 0, 0, 0, 0], count: 1 },
        { bytes: [1], table, count: 1 },
      ],
      { bytes: new DataView(bytes.buffer), table, count: 0 },
      { bytes, table: new Int32Array(6), count: 1 },
    ];
    for (const batch of none) expect(loose("ed25519", batch)).rejects.toThrow(ConfigError);
  });

  test("bytes that have been released", () => {
    const packed = pack(good);
    (packed.bytes.buffer as ArrayBuffer).transfer(0);
    expect(loose("ed25519", packed)).rejects.toThrow("have been released");
  });

  test("an option that the scheme does not have, or with a bad value", () => {
    const refused: [scheme: string, options: object, words: string][] = [
      ["ed25519", { context: new Uint8Array(1) }, 'ed25519 has no option "context"; it takes backend'],
      ["ml-dsa-44", { lowS: true }, "it takes context"],
      ["secp256k1", { form: "single" }, "it takes digest, encoding, lowS"],
      ["bls12-381", { form: "many" }, 'form is "many"; it takes single, same-message, aggregate'],
      ["bls12-381", { ciphersuite: "" }, "domain separation tag"],
      ["bls12-381", { ciphersuite: "x".repeat(256) }, "domain separation tag"],
      ["bls12-381", { ciphersuite: "Ä" }, "domain separation tag"],
      ["secp256k1", { digest: "md5" }, "it takes given, sha256, keccak-256"],
      ["secp256k1", { encoding: "hex" }, "it takes compact, der"],
      ["secp256k1", { lowS: 1 }, "it takes true, false"],
      ["ml-dsa-65", { context: "text" }, "context"],
      ["ml-dsa-65", { context: new Uint8Array(256) }, "context has 256 bytes; it takes at most 255"],
      ["slh-dsa-shake-256s", { context: new Uint8Array(256) }, "at most 255"],
      ["ed25519", { reasons: "yes" }, "reasons"],
      ["ed25519", { signal: {} }, "signal"],
      ["ed25519", { onDeviceError: 1 }, "onDeviceError"],
      ["ed25519", { backend: "gpu" }, 'the option backend is "gpu"; it takes cuda, cpu, auto'],
      ["ed25519", { retries: 3 }, 'no option "retries"'],
    ];
    for (const [scheme, options, words] of refused) {
      expect(loose(scheme, [], options)).rejects.toThrow(words);
      expect(loose(scheme, [], options)).rejects.toThrow(ConfigError);
    }
  });

  test("an option that is undefined is as if it were not there", async () => {
    expect(await loose("ed25519", good, { context: undefined, backend: undefined })).toEqual(
      good.map(() => true),
    );
  });
});

describe("what is answered", () => {
  test("booleans, or verdicts on request", async () => {
    const answers: boolean[] = await batchVerifyEd25519(good);
    expect(answers).toEqual([true, true, true, true]);
    const verdicts: Verdict[] = await batchVerifyEd25519(good, { reasons: true });
    expect(verdicts).toEqual(good.map(() => ({ valid: true, reason: "valid" })));
  });

  test("nothing, for an empty batch of any kind", async () => {
    const empty = { bytes: new Uint8Array(0), table: new Uint32Array(0), count: 0 };
    for (const scheme of SCHEMES) {
      expect(await batchVerify(scheme, [])).toEqual([]);
      expect(await batchVerify(scheme, empty)).toEqual([]);
    }
    expect(await batchVerifyBLS([], { reasons: true })).toEqual([]);
    expect(await batchVerifySecp256k1(pack([]))).toEqual([]);
  });

  test("every item of a list that is large, in order", async () => {
    const many = Array.from({ length: 20_000 }, (_, at) =>
      at % 997 === 0 ? { ...good[0]!, signature: good[1]!.signature.subarray(at % 2) } : good[at % 4]!,
    );
    const expected = many.map((_, at) => at % 997 !== 0);
    expect(await batchVerifyEd25519(many)).toEqual(expected);
  });

  test("codes and reasons are in step", () => {
    expect<number[]>(Object.values(CODE)).toEqual(REASONS.map((_, at) => at));
    expect(REASONS[CODE.valid]).toBe("valid");
    expect(REASONS[CODE.signature]).toBe("signature");
    expect(
      Object.keys(CODE).map((name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)),
    ).toEqual([...REASONS]);
  });
});

describe("signals", () => {
  test("one that has fired already, or fires at once", async () => {
    const reason = new Error("enough");
    const fired = AbortSignal.abort(reason);
    for (const batch of [good, pack(good), []]) {
      const error = await loose("ed25519", batch, { signal: fired }).catch((caught: unknown) => caught);
      expect(error).toMatchObject({ name: "AbortError", code: "ERR_ZAP_ABORTED", cause: reason });
    }
    const controller = new AbortController();
    const many = Array.from({ length: 50_000 }, (_, at) => good[at % 4]!);
    const answer = batchVerifyEd25519(many, { signal: controller.signal });
    controller.abort();
    expect(answer).rejects.toMatchObject({ code: "ERR_ZAP_ABORTED" });
  });
});

describe("packing", () => {
  const shape = ({ bytes, table, count }: ReturnType<typeof pack>, at: number): Item => {
    const [k = 0, kl = 0, m = 0, ml = 0, s = 0, sl = 0] = table.subarray(6 * at, 6 * at + 6);
    expect(at).toBeLessThan(count);
    return {
      publicKey: bytes.slice(k, k + kl),
      message: bytes.slice(m, m + ml),
      signature: bytes.slice(s, s + sl),
    };
  };

  test("copies parts that lie in different buffers", () => {
    const packed = pack(good);
    expect(packed.count).toBe(4);
    for (const [at, item] of good.entries()) expect(shape(packed, at)).toEqual(item);
    const original = good[0]!.publicKey[0]!;
    packed.bytes[packed.table[0]!]! ^= 0xff;
    expect(good[0]!.publicKey[0]).toBe(original);
  });

  test("takes parts of one buffer where they lie, unless shared memory is asked for", () => {
    const buffer = new Uint8Array(1_000).map((_, at) => at);
    const some: Item[] = [0, 1, 2].map((at) => ({
      publicKey: buffer.subarray(100 + at * 200, 132 + at * 200),
      message: buffer.subarray(132 + at * 200, 230 + at * 200),
      signature: buffer.subarray(230 + at * 200, 294 + at * 200),
    }));
    const inPlace = pack(some);
    expect(inPlace.bytes.buffer).toBe(buffer.buffer);
    expect(inPlace.bytes.byteOffset).toBe(100);
    for (const [at, item] of some.entries()) expect(shape(inPlace, at)).toEqual(item);
    const shared = pack(some, { shared: true });
    expect(shared.bytes.buffer).toBeInstanceOf(SharedArrayBuffer);
    expect(shared.table.buffer).toBeInstanceOf(SharedArrayBuffer);
    for (const [at, item] of some.entries()) expect(shape(shared, at)).toEqual(item);
  });

  test("does not keep a large buffer for a few bytes of it", () => {
    const buffer = new Uint8Array(1_000_000);
    const item = { publicKey: buffer.subarray(0, 32), message: buffer.subarray(500_000, 500_010) };
    const packed = pack([{ ...item, signature: buffer.subarray(999_936) }]);
    expect(packed.bytes.length).toBe(32 + 10 + 64);
  });

  test("empty parts, odd items, and items that change while they are packed", () => {
    const nothing = new Uint8Array(0);
    const packed = pack([{ publicKey: nothing, message: nothing, signature: nothing }]);
    expect([...packed.table]).toEqual([0, 0, 0, 0, 0, 0]);
    let looks = 0;
    const shifty = {
      ...good[0]!,
      get signature() {
        return new Uint8Array(64 + looks++);
      },
    };
    const { table, bytes } = pack([shifty, good[1]!]);
    expect(table[4]! + table[5]!).toBeGreaterThan(bytes.length);
    expect(() => (pack as (batch: unknown) => unknown)("text")).toThrow(ConfigError);
  });

  test("more than a table can address is refused before it is copied", () => {
    const giant = new Uint8Array(1024 ** 3);
    const item = { publicKey: giant, message: giant, signature: giant };
    // The views share one buffer, and four items would need eight times what a table addresses.
    expect(() => pack([item, item, { ...item, publicKey: new Uint8Array(1) }])).toThrow(LimitError);
  });

  test("goes in steps", () => {
    const steps = packing(
      Array.from({ length: 10_000 }, () => good[0]!),
      false,
    );
    let count = 0;
    for (let step = steps.next(); step.done !== true; step = steps.next()) count++;
    expect(count).toBeGreaterThan(4);
  });

  test("messages of an aggregate", () => {
    const packed = packMessages([Uint8Array.of(1, 2), new Uint8Array(0), Uint8Array.of(3)]);
    expect([...packed]).toEqual([2, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 3]);
    expect(() => packMessages(["text" as unknown as Uint8Array])).toThrow(ConfigError);
  });
});

describe("backends", () => {
  const fake = (name: "cpu" | "cuda", only: string): Backend => ({
    name,
    serves: (scheme) => scheme === only || `no ${scheme} on ${name}`,
    run: async (_job: Job) => {},
  });
  const rows = [fake("cuda", "ed25519"), fake("cpu", "secp256k1")];
  const before = process.env["ZAP_VERIFY_BACKEND"];
  afterEach(() => {
    if (before === undefined) delete process.env["ZAP_VERIFY_BACKEND"];
    else process.env["ZAP_VERIFY_BACKEND"] = before;
  });

  test("the best that serves the scheme, or the one that is wanted", () => {
    expect(chooseBackend("ed25519", null, rows).name).toBe("cuda");
    expect(chooseBackend("secp256k1", null, rows).name).toBe("cpu");
    expect(chooseBackend("ed25519", "cuda", rows).name).toBe("cuda");
    expect(() => chooseBackend("ed25519", "cpu", rows)).toThrow("cpu: no ed25519 on cpu");
    expect(() => chooseBackend("bls12-381", null, rows)).toThrow(
      "cuda: no bls12-381 on cuda; cpu: no bls12-381 on cpu",
    );
    expect(() => chooseBackend("ed25519", "cuda", [])).toThrow(NotAvailableError);
  });

  test("an option goes before the environment; case and blanks do not matter", () => {
    expect(wantedBackend(undefined, {})).toBeNull();
    expect(wantedBackend(undefined, { ZAP_VERIFY_BACKEND: " " })).toBeNull();
    expect(wantedBackend(undefined, { ZAP_VERIFY_BACKEND: " CPU " })).toBe("cpu");
    expect(wantedBackend("auto", { ZAP_VERIFY_BACKEND: "cuda" })).toBeNull();
    expect(wantedBackend("cpu", { ZAP_VERIFY_BACKEND: "cuda" })).toBe("cpu");
    expect(() => wantedBackend(undefined, { ZAP_VERIFY_BACKEND: "x" })).toThrow('ZAP_VERIFY_BACKEND is "x"');
  });

  test("one that is forced by either and not there is an error, for an empty batch too", async () => {
    for (const batch of [items("secp256k1", 1), []]) {
      expect(batchVerifySecp256k1(batch, { backend: "cuda" })).rejects.toThrow(NotAvailableError);
      process.env["ZAP_VERIFY_BACKEND"] = "cuda";
      expect(batchVerifySecp256k1(batch)).rejects.toThrow("no CUDA kernel verifies secp256k1");
      expect(await batchVerifySecp256k1(batch, { backend: "cpu" })).toEqual(batch.map(() => true));
      process.env["ZAP_VERIFY_BACKEND"] = "nonsense";
      expect(batchVerifySecp256k1(batch)).rejects.toThrow(ConfigError);
      delete process.env["ZAP_VERIFY_BACKEND"];
    }
  });

  test("verifyBackends() has a row for each scheme of each, and the CPU serves them all", () => {
    const reports = verifyBackends();
    expect(reports.map(({ name }) => name)).toEqual(["cuda", "cpu"]);
    for (const { schemes, available } of reports) {
      expect(schemes.map(({ scheme }) => scheme)).toEqual([...SCHEMES]);
      expect(available).toBe(schemes.some(({ served }) => served));
      for (const { served, reason } of schemes) expect(reason === "").toBe(served);
    }
    expect(reports[1]!.schemes.every(({ served }) => served)).toBe(true);
  });

  test("parameters are complete, and the caller's context is copied", () => {
    const context = Uint8Array.of(1, 2);
    const params = checkParams("ml-dsa-44", { context } as object);
    context[0] = 9;
    expect(params).toEqual({
      context: Uint8Array.of(1, 2),
      digest: "given",
      encoding: "compact",
      lowS: true,
      ciphersuite: "BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_",
      form: "single",
    });
  });
});
