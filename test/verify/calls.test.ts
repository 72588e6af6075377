/** The calls themselves: what they take and refuse, packing, backends, signals. */
import { afterEach, describe, expect, test } from "bun:test";
import {
  batchVerify,
  batchVerifyBLS,
  batchVerifyEd25519,
  batchVerifyMLDSA,
  batchVerifySecp256k1,
  batchVerifySLHDSA,
  BLS_AUG,
  BLS_NUL,
  ConfigError,
  NotAvailableError,
  pack,
  REASONS,
  SCHEMES,
  verifyBackends,
  type Item,
  type Verdict,
} from "../../lib/index.ts";
import { CODE, type Backend, type Job } from "../../lib/verify/contract.ts";
import { checkOptions } from "../../lib/verify/options.ts";
import { chooseBackend, wantedBackend } from "../../lib/verify/registry.ts";
import { items } from "./kit.ts";
import { released } from "./odd-values.ts";

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

  test("options that are none, or cannot be read", async () => {
    const throws = Object.defineProperty({}, "reasons", {
      enumerable: true,
      get() {
        throw new TypeError("mine");
      },
    });
    const gone = Proxy.revocable({}, {});
    gone.revoke();
    for (const options of [null, 5, "cpu", true, 5n, Symbol("s"), () => 1, class {}, throws, gone.proxy, [1]])
      expect(loose("ed25519", good, options)).rejects.toThrow(ConfigError);
    expect(loose("ed25519", good, null)).rejects.toThrow("the options are an object, not null");
    expect(loose("ed25519", good, { backend: { toString: () => "cpu" } })).rejects.toThrow("backend");
    expect(loose("ml-dsa-44", [], { context: released(new Uint8Array(3)) })).rejects.toThrow("released");
    expect(await loose("ed25519", good, undefined)).toEqual(good.map(() => true));
  });

  test("a signal that is none", async () => {
    const { signal } = new AbortController();
    const gone = Proxy.revocable(signal, {});
    gone.revoke();
    for (const none of [
      null,
      new Proxy(signal, {}),
      Object.create(AbortSignal.prototype),
      gone.proxy,
      new EventTarget(),
    ])
      expect(loose("ed25519", good, { signal: none })).rejects.toThrow("it takes an AbortSignal");
    // One that says something else than it is counts for what it is.
    const controller = new AbortController();
    const meddled = Object.defineProperties(controller.signal, {
      aborted: {
        get: () => {
          throw new Error("mine");
        },
      },
      reason: { value: "no" },
      addEventListener: { value: null },
      removeEventListener: { value: null },
    });
    expect(await loose("ed25519", good, { signal: meddled })).toEqual(good.map(() => true));
    const many = Array.from({ length: 3_000 }, () => good[0]!);
    const answer = loose("ed25519", many, { signal: meddled });
    controller.abort("enough");
    expect(answer).rejects.toMatchObject({ code: "ERR_ZAP_ABORTED", cause: "enough" });
    expect(loose("ed25519", good, { signal: meddled })).rejects.toMatchObject({ code: "ERR_ZAP_ABORTED" });
  });

  test("every option is read once, before the work", async () => {
    const looks: string[] = [];
    const options = {};
    for (const name of ["backend", "signal", "reasons", "onDeviceError", "digest", "encoding", "lowS"])
      Object.defineProperty(options, name, {
        enumerable: true,
        get: () => void looks.push(name),
      });
    expect(await loose("secp256k1", items("secp256k1", 1), options)).toEqual([true]);
    expect(looks.sort()).toEqual([...new Set(looks)]);
    expect(looks).toHaveLength(7);
    const changing: { reasons: boolean } = { reasons: true };
    const answer = loose("ed25519", good.slice(1), changing);
    changing.reasons = false;
    expect(await answer).toEqual(good.slice(1).map(() => ({ valid: true, reason: "valid" })));
    // Those of a prototype count, too.
    expect(await loose("ed25519", good.slice(3), Object.create({ reasons: true }))).toEqual([
      { valid: true, reason: "valid" },
    ]);
  });

  test("a ciphersuite is printable, with blanks; no tag of another suite has the form same-message", async () => {
    for (const ciphersuite of ["a tag with blanks", "~".repeat(255), " "])
      expect(await loose("bls12-381", [], { ciphersuite })).toEqual([]);
    for (const ciphersuite of ["tab\t", "line\n", "\x7f", "\0"])
      expect(loose("bls12-381", [], { ciphersuite })).rejects.toThrow("printable");
    for (const ciphersuite of [BLS_NUL, BLS_AUG, "MINE_NUL_", "MINE_AUG_"])
      expect(loose("bls12-381", [], { ciphersuite, form: "same-message" })).rejects.toThrow("has none");
    expect(await loose("bls12-381", [], { ciphersuite: "MINE_NUL", form: "same-message" })).toEqual([]);
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
    const { params } = checkOptions("ml-dsa-44", { context });
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
