/** Memory that is released, or shrinks, while a GPU verifies it: the caller's mistake, and never the device's. Over a double of the driver. */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { ZapError } from "../../lib/errors/index.ts";
import { openDeviceMemory, SlabPool } from "../../lib/memory/index.ts";
import { umaRuntime } from "../../lib/transport/probes/uma.ts";
import { batchInPlace } from "../../lib/verify/backends/gpu-place.ts";
import type { Backend, PackedBatch } from "../../lib/verify/contract.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import type { Behaviour } from "../support/double-host.ts";
import { noNative } from "../support/native.ts";
import { failureOf } from "../support/wait.ts";
import { differences, nodeCodes, packed, randomItems } from "./ed25519-cases.ts";
import { makeGpu, type Made } from "./gpu-kit.ts";
import { resizable } from "./odd-values.ts";

setDefaultTimeout(20_000);
afterAll(forgetHosts);

/** The CPU must not get these. */
const noCpu: Backend = {
  name: "cpu",
  serves: () => true,
  run: () => Promise.reject(new Error("the CPU was asked")),
};

const make = (behaviour?: Behaviour, env?: Record<string, string>): Made => makeGpu(noCpu, behaviour, env);

const random = packed(randomItems(300, 5));

/** The same items in so much memory that they are gathered, and do not go there whole. */
function spread(): PackedBatch {
  const bytes = new Uint8Array(8 * 1024 * 1024);
  bytes.set(random.bytes);
  return { ...random, bytes };
}

type Taken = [batch: PackedBatch, take: () => void];

const WAYS: Readonly<Record<string, () => Taken>> = {
  "bytes that are transferred": () => {
    const bytes = new Uint8Array(random.bytes);
    return [{ ...random, bytes }, () => void bytes.buffer.transfer()];
  },
  "a table that is transferred": () => {
    const table = new Uint32Array(random.table);
    return [{ ...random, table }, () => void table.buffer.transfer()];
  },
  "bytes that shrink": () => {
    const [bytes, buffer] = resizable(random.bytes);
    return [{ ...random, bytes }, () => buffer.resize(10)];
  },
  "bytes that are gathered, and are transferred": () => {
    const batch = spread();
    return [batch, () => void (batch.bytes.buffer as ArrayBuffer).transfer()];
  },
  "a table of bytes that are gathered": () => {
    const table = new Uint32Array(random.table);
    return [{ ...spread(), table }, () => void table.buffer.transfer()];
  },
};

describe.skipIf(noNative || process.platform !== "linux")("released while a GPU verifies", () => {
  describe.each(Object.entries(WAYS))("%s", (_, way) => {
    async function expectBlameless({ gpu, on, errors, ask }: Made): Promise<void> {
      expect(errors).toEqual([]);
      expect(gpu.serves("ed25519")).toBe(true);
      expect(differences(await ask(random), nodeCodes(random))).toEqual([]);
      await gpu.close();
      for (const line of on.reported()) expect(line).toEndWith("modules=0 faults=0");
    }

    test.each([false, true])("right after the call; forced: %p", async (forced) => {
      const made = make();
      await made.gpu.warm();
      const [batch, take] = way();
      const answer = made.ask(batch, { forced });
      take();
      expect(await failureOf(answer)).toMatchObject({ name: "ReleasedError", code: "ERR_ZAP_VERIFY" });
      await expectBlameless(made);
    });

    test("while the driver compiles the kernel", async () => {
      const made = make({ "delay.cuModuleLoadData": 60, "after.cuModuleLoadData": 1 });
      const [batch, take] = way();
      const answer = made.ask(batch, { forced: true });
      setTimeout(take, 5);
      expect(await failureOf(answer)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
      await expectBlameless(made);
    });

    test("while it waits for another batch", async () => {
      const made = make({ kernel_millis: 40 });
      await made.gpu.warm();
      const [batch, take] = way();
      const [first, answer, third] = [made.ask(random), made.ask(batch), made.ask(random)];
      setTimeout(take, 5);
      expect(await failureOf(answer)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
      for (const codes of await Promise.all([first, third]))
        expect(differences(codes, nodeCodes(random))).toEqual([]);
      await expectBlameless(made);
    });

    test("while its kernel runs: the device has its own copy, and the codes are right", async () => {
      const made = make({ kernel_millis: 60 });
      await made.gpu.warm();
      const [batch, take] = way();
      const wanted = nodeCodes(batch);
      const answer = made.ask(batch);
      // A copy of some hundred kilobytes is over by then.
      setTimeout(take, 30);
      const outcome = await answer.catch((error: unknown) => error);
      if (outcome instanceof ZapError) expect(outcome.code).toBe("ERR_ZAP_VERIFY");
      else expect(differences(outcome as Uint8Array, wanted)).toEqual([]);
      await expectBlameless(made);
    });
  });

  test("memory of the device that is verified in place is lent; its table is the caller's", async () => {
    const made = make({ alias: 1, kernel_millis: 30 });
    const kind = await openDeviceMemory(umaRuntime(made.on.host)!, made.on.host.env, made.on.host);
    const pool = new SlabPool(kind, { poolBytes: 64 * 1024 * 1024, debug: false });
    const buffer = pool.tryAlloc(random.bytes.length)!;
    buffer.bytes.set(random.bytes);
    const inPlace = (table: Uint32Array) => batchInPlace(buffer, table, random.count);
    const first = new Uint32Array(random.table);
    const compiling = made.ask(inPlace(first), { forced: true });
    first.buffer.transfer();
    expect(await failureOf(compiling)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
    // Both at once: the second waits for its turn.
    const table = new Uint32Array(random.table);
    const [running, waiting] = [made.ask(inPlace(random.table)), made.ask(inPlace(table))];
    setTimeout(() => table.buffer.transfer(), 5);
    expect(await failureOf(waiting)).toMatchObject({ code: "ERR_ZAP_VERIFY" });
    expect(differences(await running, nodeCodes(random))).toEqual([]);
    const lent = made.ask(inPlace(random.table));
    buffer.release();
    expect(differences(await lent, nodeCodes(random))).toEqual([]);
    await Bun.sleep(0);
    expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 0 });
    expect(made.errors).toEqual([]);
    expect(made.gpu.serves("ed25519")).toBe(true);
    await made.gpu.close();
    await pool.close();
  });
});
