import { afterAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { checkHeaders, HEADER_VERDICTS } from "../../lib/kernels/index.ts";
import { openDeviceMemory, SlabPool, type DeviceMemory } from "../../lib/memory/index.ts";
import { umaRuntime } from "../../lib/transport/probes/uma.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { DoubleHost, type Behaviour, type Vendor } from "../support/double-host.ts";
import { messageOf } from "../support/messages.ts";
import { noNative } from "../support/native.ts";
import { runs } from "../support/properties.ts";
import { failureOf, within } from "../support/wait.ts";

afterAll(forgetHosts);

const MIB = 1024 ** 2;
const POOL = { poolBytes: 64 * MIB, debug: false };

function poolOn(vendor: Vendor, behaviour: Behaviour = {}, env: Record<string, string> = {}) {
  const on = new DoubleHost(vendor, behaviour, {}, env);
  return openDeviceMemory(umaRuntime(on.host)!, on.host.env, on.host).then((kind: DeviceMemory) => ({
    on,
    kind,
    pool: new SlabPool(kind, POOL),
  }));
}

/** A message with a header that may be anything, and which verdict it must get with the versions 1 and 7. */
const headers = fc
  .record({
    bytes: fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constant(1_000)),
    magic: fc.constantFrom(0x0050415a, 0x0050415a, 0x0050415a, 0x0050415b, 0),
    version: fc.constantFrom(1, 1, 7, 0, 2, 0xffff),
    size: fc.oneof(fc.constant(null), fc.integer({ min: 0, max: 50 }), fc.constant(0xffff_ffff)),
    root: fc.oneof(fc.constantFrom(0, 16, 0xffff_ffff), fc.integer({ min: 0, max: 50 })),
  })
  .map(({ bytes, magic, version, size: given, root }) => {
    const size = given ?? bytes;
    const message = new Uint8Array(bytes);
    if (bytes >= 16) {
      const view = new DataView(message.buffer);
      view.setUint32(0, magic, true);
      view.setUint16(4, version, true);
      view.setUint32(8, root, true);
      view.setUint32(12, size, true);
    }
    const verdict = (): string => {
      if (bytes < 16) return "short";
      if (magic !== 0x0050415a) return "magic";
      if (version !== 1 && version !== 7) return "version";
      if (size < 16 || size > bytes) return "size";
      return root === 0 || (root >= 16 && root <= size) ? "ok" : "root";
    };
    return { message, verdict: verdict() };
  });

describe("on the CPU", () => {
  test("each fault has its verdict", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(headers, { maxLength: 50 }), async (cases) => {
        const { verdicts, where } = await checkHeaders(
          cases.map(({ message }) => message),
          { versions: [1, 7] },
        );
        expect(where).toBe("cpu");
        expect(Array.from(verdicts, (verdict) => HEADER_VERDICTS[verdict]!)).toEqual(
          cases.map(({ verdict }) => verdict as never),
        );
      }),
      runs(200),
    );
  });

  test("versions that cannot be used are refused", async () => {
    for (const versions of [[], [0], [65_536], [1.5], [1, 2, 3, 4, 5]])
      expect(await failureOf(checkHeaders([messageOf(20)], { versions }))).toMatchObject({
        code: "ERR_ZAP_CONFIG",
      });
    const aborted = checkHeaders([messageOf(20)], { signal: AbortSignal.abort("enough") });
    expect(await failureOf(aborted)).toMatchObject({ code: "ERR_ZAP_ABORTED" });
  });
});

describe.skipIf(noNative || process.platform !== "linux")("on a device", () => {
  for (const vendor of ["cuda", "metal"] as const) {
    test(`${vendor} gives the verdicts of the CPU, wherever the buffers lie`, async () => {
      const { kind, pool } = await poolOn(vendor);
      await fc.assert(
        fc.asyncProperty(fc.array(headers, { minLength: 1, maxLength: 50 }), async (cases) => {
          const buffers = cases.map(({ message }) => {
            const buffer = pool.tryAlloc(message.length)!;
            buffer.bytes.set(message);
            return buffer;
          });
          const onDevice = await checkHeaders(buffers, { versions: [1, 7] });
          const onCpu = await checkHeaders(buffers, { versions: [1, 7], on: "cpu" });
          expect([onDevice.where, onCpu.where]).toEqual([vendor, "cpu"]);
          expect(onDevice.verdicts).toEqual(onCpu.verdicts);
          const spans = buffers.map(({ regionHandle, regionOffset, size }) => ({
            region: regionHandle,
            offset: regionOffset,
            length: size,
          }));
          const inC = new Uint8Array(buffers.length);
          kind.checkHost(spans, [1, 7], inC);
          expect([...inC]).toEqual([...onCpu.verdicts]);
          for (const buffer of buffers) buffer.release();
        }),
        runs(50),
      );
      expect(pool.stats().buffers).toBe(0);
      await pool.close();
    });
  }

  test("a HIP device leaves it to the CPU, and so does a mixture of memories", async () => {
    const { pool } = await poolOn("hip");
    const buffer = pool.tryAlloc(100)!;
    buffer.bytes.set(messageOf(100));
    expect((await checkHeaders([buffer])).where).toBe("cpu");
    expect(await checkHeaders([buffer, messageOf(100)])).toEqual({
      verdicts: Uint8Array.of(0, 0),
      where: "cpu",
    });
    buffer.release();
    await pool.close();
  });

  test("takes more than one launch holds", async () => {
    const { pool } = await poolOn("cuda");
    const count = 66_000;
    const buffers = Array.from({ length: count }, (_, n) => {
      const buffer = pool.tryAlloc(16)!;
      buffer.bytes.set(messageOf(16, 0, { version: n % 1_000 === 7 ? 9 : 1 }));
      return buffer;
    });
    const { verdicts, where } = await checkHeaders(buffers);
    expect(where).toBe("cuda");
    expect(verdicts.length).toBe(count);
    expect(verdicts.every((verdict, n) => verdict === (n % 1_000 === 7 ? 3 : 0))).toBe(true);
    for (const buffer of buffers) buffer.release();
    await pool.close();
  });

  test("a buffer that is released while a kernel reads it goes back when that has ended", async () => {
    const { pool } = await poolOn("cuda", { kernel_millis: 100 });
    const buffer = pool.tryAlloc(100)!;
    buffer.bytes.set(messageOf(100));
    const checking = checkHeaders([buffer]);
    buffer.release();
    expect(pool.stats().buffers).toBe(1);
    expect(await within(checking, "the verdicts")).toEqual({ verdicts: Uint8Array.of(0), where: "cuda" });
    await Bun.sleep(0);
    expect(pool.stats().buffers).toBe(0);
    await pool.close();
  });

  test("a list that cannot be checked costs none of its buffers anything", async () => {
    const { pool } = await poolOn("cuda");
    const buffers = [1, 2, 3].map(() => {
      const buffer = pool.tryAlloc(100)!;
      buffer.bytes.set(messageOf(100));
      return buffer;
    });
    buffers[1]!.release();
    expect(await failureOf(checkHeaders(buffers))).toMatchObject({ code: "ERR_ZAP_CLOSED" });
    const [first, , last] = buffers;
    expect((await checkHeaders([first!, last!])).where).toBe("cuda");
    await first!.handOver("gpu");
    first!.release();
    last!.release();
    await Bun.sleep(0);
    expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 0 });
    expect(await pool.close({ outstanding: "wait" })).toEqual({ buffers: 0, bytes: 0 });
  });

  test("one buffer may be read many times at once", async () => {
    const { pool } = await poolOn("cuda", { kernel_millis: 20 });
    const buffer = pool.tryAlloc(100)!;
    buffer.bytes.set(messageOf(100));
    const all = await Promise.all([1, 2, 3].map(() => checkHeaders([buffer, buffer])));
    expect(all).toEqual(all.map(() => ({ verdicts: Uint8Array.of(0, 0), where: "cuda" as const })));
    const checking = checkHeaders([buffer]);
    expect(() => buffer.handOver("gpu")).toThrow("another hand-over");
    await checking;
    await buffer.handOver("gpu");
    buffer.release();
    await Bun.sleep(0);
    expect(pool.stats().buffers).toBe(0);
    await pool.close();
  });

  test("a buffer of a later launch may be released before that", async () => {
    const { pool } = await poolOn("cuda", { kernel_millis: 20 });
    const buffers = Array.from({ length: 65_600 }, () => {
      const buffer = pool.tryAlloc(16)!;
      buffer.bytes.set(messageOf(16));
      return buffer;
    });
    const checking = checkHeaders(buffers);
    for (const buffer of buffers) buffer.release();
    expect((await checking).verdicts.every((verdict) => verdict === 0)).toBe(true);
    await Bun.sleep(0);
    expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 0 });
    await pool.close();
  });

  test("a launch that is not answered in time may still come: its memory is not used again", async () => {
    const { pool } = await poolOn("cuda", { "delay.cuLaunchKernel": 300 }, { ZAP_DEVICE_MILLIS: "100" });
    const buffer = pool.tryAlloc(100)!;
    buffer.bytes.set(messageOf(100));
    expect((await failureOf(checkHeaders([buffer]))).message).toContain("cuLaunchKernel");
    buffer.release();
    await Bun.sleep(0);
    expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 256 });
    await Bun.sleep(400);
    await pool.close().catch(() => {});
  });

  test("an abort gives up the result, not the memory", async () => {
    const { pool } = await poolOn("cuda", { kernel_millis: 50 });
    const buffer = pool.tryAlloc(100)!;
    buffer.bytes.set(messageOf(100));
    const abort = new AbortController();
    const checking = checkHeaders([buffer], { signal: abort.signal });
    abort.abort("enough");
    expect(await failureOf(checking)).toMatchObject({ code: "ERR_ZAP_ABORTED" });
    buffer.release();
    expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 0 });
    await pool.close();
  });

  test("a launch that fails is reported, and the memory is whole", async () => {
    const { pool } = await poolOn("cuda", { "fail.cuLaunchKernel": 701 });
    const buffer = pool.tryAlloc(100)!;
    expect(await failureOf(checkHeaders([buffer]))).toMatchObject({ code: "ERR_ZAP_SHIM" });
    buffer.release();
    expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 0 });
    await pool.close();
  });

  test("a kernel that never ends costs what it reads, and nothing else", async () => {
    const { pool } = await poolOn("cuda", { kernel_millis: 2_000 }, { ZAP_DEVICE_MILLIS: "100" });
    const [read, other] = [pool.tryAlloc(100)!, pool.tryAlloc(100)!];
    expect((await failureOf(checkHeaders([read]))).message).toContain("100 ms");
    read.release();
    other.release();
    await Bun.sleep(0);
    expect(pool.stats()).toMatchObject({ buffers: 0, lostBytes: 256 });
    await Bun.sleep(2_000);
    await pool.close().catch(() => {});
  });
});
