/** Memory that is released, or shrinks, before a batch is given or while it is verified: an error, never a verdict, and the next batch is well. */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  batchVerify,
  batchVerifyEd25519,
  batchVerifyMLDSA,
  ConfigError,
  pack,
  type Item,
  type PackedBatch,
} from "../../lib/index.ts";
import { CpuBackend } from "../../lib/verify/backends/cpu.ts";
import { DEFAULT_PARAMS, type Backend, type Job } from "../../lib/verify/contract.ts";
import { runJob } from "../../lib/verify/dispatch.ts";
import { failureOf } from "../support/wait.ts";
import { items } from "./kit.ts";
import { outOfBounds, released, resizable } from "./odd-values.ts";

setDefaultTimeout(30_000);

/** Sizes for the calling thread, for one slice of the pool, and for several. */
const SIZES = [3, 300, 9_000];
const ALL = items("ed25519", 9_000, 30);

/** A batch whose memory can be taken from it. */
interface Held {
  readonly batch: PackedBatch;
  readonly take: () => void;
}

const copyOf = (count: number): PackedBatch => {
  const { bytes, table } = pack(ALL.slice(0, count));
  return { bytes: bytes.slice(), table: table.slice(), count };
};

function sharedBytes({ bytes }: PackedBatch): Uint8Array {
  const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
  shared.set(bytes);
  return shared;
}

function shrinkingTable(table: Uint32Array): [Uint32Array, ArrayBuffer] {
  const [view, buffer] = resizable(new Uint8Array(table.buffer));
  return [new Uint32Array(view.buffer), buffer];
}

const WAYS: Readonly<Record<string, (batch: PackedBatch) => Held>> = {
  "bytes that are transferred": (batch) => ({
    batch,
    take: () => void (batch.bytes.buffer as ArrayBuffer).transfer(),
  }),
  "a table that is transferred": (batch) => ({
    batch,
    take: () => void (batch.table.buffer as ArrayBuffer).transfer(),
  }),
  "bytes that shrink": (batch) => {
    const [bytes, buffer] = resizable(batch.bytes);
    return { batch: { ...batch, bytes }, take: () => buffer.resize(bytes.length - 1) };
  },
  "bytes that follow their buffer, which shrinks": (batch) => {
    const [, buffer] = resizable(batch.bytes);
    return { batch: { ...batch, bytes: new Uint8Array(buffer) }, take: () => buffer.resize(100) };
  },
  "a table that shrinks": (batch) => {
    const [table, buffer] = shrinkingTable(batch.table);
    return { batch: { ...batch, table }, take: () => buffer.resize(24) };
  },
  "shared bytes, and a table that is transferred": (batch) => ({
    batch: { ...batch, bytes: sharedBytes(batch) },
    take: () => void (batch.table.buffer as ArrayBuffer).transfer(),
  }),
  "shared bytes, and a table that shrinks": (batch) => {
    const [table, buffer] = shrinkingTable(batch.table);
    return { batch: { ...batch, table, bytes: sharedBytes(batch) }, take: () => buffer.resize(0) };
  },
};

async function expectWell(): Promise<void> {
  expect(await batchVerifyEd25519(ALL.slice(0, 300))).toEqual(Array(300).fill(true));
}

describe("released before the call", () => {
  test.each(Object.entries(WAYS))("%s", async (name, way) => {
    for (const count of [3, 300]) {
      const { batch, take } = way(copyOf(count));
      take();
      // A view that follows its buffer is what is left of it, and its items are what they are.
      if (name.includes("follow")) {
        const answer = await batchVerifyEd25519(batch, { reasons: true });
        expect(answer.at(-1)).toEqual({ valid: false, reason: "item" });
      } else expect(await failureOf(batchVerifyEd25519(batch))).toBeInstanceOf(ConfigError);
    }
  });

  test("says what was released, for an empty batch too", async () => {
    const table = new Uint32Array(6);
    const gone = new Uint32Array(6);
    gone.buffer.transfer();
    for (const bytes of [released(), released(new Uint8Array(0)), outOfBounds()])
      for (const count of [0, 1])
        expect((await failureOf(batchVerify("secp256k1", { bytes, table, count }))).message).toBe(
          "the bytes of this packed batch have been released",
        );
    expect(
      (await failureOf(batchVerify("secp256k1", { bytes: new Uint8Array(0), table: gone, count: 0 })))
        .message,
    ).toBe("the table of this packed batch has been released");
  });
});

describe("released right after the call, or later", () => {
  describe.each(Object.entries(WAYS))("%s", (_, way) => {
    test.each(SIZES)("%d items", async (count) => {
      for (const wait of count > 1_000 ? [0, 1, 20] : [0]) {
        const { batch, take } = way(copyOf(count));
        const answer = batchVerifyEd25519(batch);
        if (wait > 0) setTimeout(take, wait);
        else take();
        expect(await failureOf(answer, 15_000)).toMatchObject({
          code: "ERR_ZAP_VERIFY",
          message: expect.stringContaining("released or changed in size"),
        });
      }
      await expectWell();
    });
  });

  /** Items that are views of the bytes of a batch. */
  function viewsOf({ bytes, table, count }: PackedBatch): Item[] {
    const part = (at: number) => bytes.subarray(table[at]!, table[at]! + table[at + 1]!);
    return Array.from({ length: count }, (_, at) => ({
      publicKey: part(6 * at),
      message: part(6 * at + 2),
      signature: part(6 * at + 4),
    }));
  }

  test.each(SIZES)("a list in place, of %d items", async (count) => {
    const ways = [WAYS["bytes that are transferred"]!, WAYS["bytes that shrink"]!];
    for (const way of ways) {
      const { batch, take } = way(copyOf(count));
      const answer = batchVerifyEd25519(viewsOf(batch));
      take();
      expect(await failureOf(answer, 15_000)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
    }
    // Released before, its items are malformed, each of them. Of a long list nobody can tell when it was.
    const { batch, take } = ways[0]!(copyOf(count));
    const list = viewsOf(batch);
    take();
    const answer = batchVerifyEd25519(list, { reasons: true });
    if (count <= 2_048) expect(await answer).toEqual(Array(count).fill({ valid: false, reason: "item" }));
    else expect(await failureOf(answer)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
    expect([...pack(list).table]).toEqual(Array(6 * count).fill(0xffff_ffff));
    await expectWell();
  });

  test("a list that is copied: at once where it is short", async () => {
    const own = (count: number): Item[] =>
      ALL.slice(0, count).map((item) => ({ ...item, signature: new Uint8Array(item.signature) }));
    const few = own(300);
    const answer = batchVerifyEd25519(few);
    for (const { signature } of few) (signature.buffer as ArrayBuffer).transfer();
    expect(await answer).toEqual(Array(300).fill(true));
    const many = own(9_000);
    const late = batchVerifyEd25519(many);
    (many[8_999]!.signature.buffer as ArrayBuffer).transfer();
    expect(await failureOf(late)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
    // Seen by then, and not yet copied.
    const again = batchVerifyEd25519(many.slice(0, 8_999));
    (many[0]!.signature.buffer as ArrayBuffer).transfer();
    expect(await failureOf(again)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
  });

  test("one large part, while it is copied", async () => {
    const [item] = ALL as [Item];
    const message = new Uint8Array(64 * 1024 * 1024);
    const answer = batchVerifyEd25519([{ ...item, message }]);
    message.buffer.transfer();
    expect(await failureOf(answer)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
  });

  test("ML-DSA with a context, whose library answers later", async () => {
    const { bytes, table } = pack(items("ml-dsa-44", 40, 4));
    const batch = { bytes: bytes.slice(), table, count: 40 };
    for (const wait of [0, 1, 2]) {
      const held = { ...batch, bytes: batch.bytes.slice() };
      const answer = batchVerifyMLDSA("ml-dsa-44", held, { context: Uint8Array.of(1), reasons: true });
      for (let turn = 0; turn < wait; turn++) await null;
      held.bytes.buffer.transfer();
      expect(await failureOf(answer)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
    }
  });
});

describe("without workers", () => {
  const cpu = new CpuBackend({ ZAP_VERIFY_WORKERS: "0" });
  afterAll(() => cpu.close());

  test.each(Object.entries(WAYS))("%s", async (_, way) => {
    const { batch, take } = way(copyOf(3_000));
    const { bytes, table, count } = batch;
    const job = { scheme: "ed25519", batch: { bytes, table, count }, params: DEFAULT_PARAMS } as const;
    const answer = runJob(cpu, { ...job, codes: new Uint8Array(count), signal: undefined });
    setImmediate(() => setImmediate(take));
    expect(await failureOf(answer, 15_000)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
  });
});

describe("what a backend makes of it", () => {
  const failing = (name: Backend["name"], error?: Error): Backend => ({
    name,
    serves: () => true,
    async run({ batch }: Job) {
      (batch.bytes.buffer as ArrayBuffer).transfer();
      if (error !== undefined) throw error;
    },
  });
  const job = (): Job => ({
    scheme: "ed25519",
    batch: copyOf(3),
    params: DEFAULT_PARAMS,
    codes: new Uint8Array(3),
    signal: undefined,
  });

  test("does not matter: the error is the same, and has that of the backend as its cause", async () => {
    for (const error of [new ConfigError("released"), new TypeError("detached")])
      for (const name of ["cpu", "cuda"] as const)
        expect(await failureOf(runJob(failing(name, error), job()))).toMatchObject({
          code: "ERR_ZAP_VERIFY",
          message: expect.stringContaining("released or changed in size"),
          cause: error,
        });
    expect(await failureOf(runJob(failing("cpu"), job()))).toMatchObject({ code: "ERR_ZAP_VERIFY" });
    // A device that has finished had the memory lent to it.
    expect(await runJob(failing("cuda"), job())).toEqual(new Uint8Array(3));
  });
});
