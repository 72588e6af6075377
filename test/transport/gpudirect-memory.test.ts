/** The `gpudirect` transport over memory of a GPU: doubles of CUDA and libibverbs in one process, and the real shims between them. */
import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { NotAvailableError } from "../../lib/errors/index.ts";
import { openGpudirect } from "../../lib/transport/gpudirect.ts";
import { probeGpudirect } from "../../lib/transport/probes/index.ts";
import { forgetHosts } from "../probe/made-up-host.ts";
import { isMessage, messageOf } from "../support/messages.ts";
import { noNative, theNative } from "../support/native.ts";
import { DoubleHost } from "../support/double-host.ts";
import { Fabric } from "../support/rdma-fabric.ts";
import { failureOf, until, within } from "../support/wait.ts";

afterAll(forgetHosts);

const MIB = 2 ** 20;
const SELECTION = { name: "gpudirect", reason: "a test", tried: [] } as const;
const REGISTRATION = "GPU memory registration";
const IBVERBS = "libibverbs.so.1";
const none = noNative || process.platform !== "linux";

const EBUSY = 16;
const EFAULT = 14;
const ENOMEM = 12;
const EOPNOTSUPP = 95;

/** How the pages at `address` are mapped: `---s` for what the CPU cannot touch. */
function accessTo(address: bigint): string | undefined {
  return readFileSync("/proc/self/maps", "utf8")
    .split("\n")
    .map((line) => /^([0-9a-f]+)-([0-9a-f]+) (....)/.exec(line))
    .find((at) => at !== null && BigInt(`0x${at[1]}`) <= address && address < BigInt(`0x${at[2]}`))?.[3];
}

let shared: Fabric | null = null;
const fabric = (): Fabric => (shared ??= new Fabric());

describe.skipIf(none)("gpudirect over a GPU's memory", () => {
  beforeEach(() => fabric().reset());

  for (const [method, choice, peermem] of [
    ["dma-buf", "auto", 0],
    ["dma-buf", "dma-buf", 0],
    ["peermem", "peermem", 1],
    ["page-locked", "page-locked", 0],
  ] as const) {
    test(`${method}, with ZAP_GPUDIRECT_METHOD=${choice}: messages of all sizes, and nothing left`, async () => {
      const net = fabric();
      net.set("peermem", peermem);
      const env = { ZAP_GPUDIRECT_METHOD: choice };
      const a = await net.open("a", "double0", env);
      const b = await net.open("b", "double1", env);
      const own = method !== "page-locked";
      for (const each of [a, b]) {
        expect(each.caps).toMatchObject({ gpuResident: true, zeroCopy: !own });
        const { rdma } = each.stats();
        expect(rdma!.method).toBe(method);
        expect(Object.keys(rdma!.registeredBytes)).toEqual(own ? ["page-locked", method] : [method]);
        const total = Object.values(rdma!.registeredBytes).reduce((sum, bytes) => sum + bytes, 0);
        expect(total).toBe(80 * MIB);
      }
      await within(a.connect(b.addresses[0]!), "a to reach b");
      let bytes = 0;
      for (const [number, size] of [20, 64, 4_096, 8_192, 8_193, 300_001, 3 * MIB].entries()) {
        await a.send("b", messageOf(size, number));
        const envelope = await within(b.recv(), `message ${number}`);
        const { devicePtr } = envelope.buffer!;
        // Where the NIC wrote it: the CPU cannot go there.
        expect(accessTo(devicePtr!)).toStartWith(own ? "---" : "rw");
        expect(b.stats().bytesCopied).toBe(own ? bytes : 0);
        expect(isMessage(envelope.message, number)).toBe(true);
        bytes += size;
        expect(b.stats().bytesCopied).toBe(own ? bytes : 0);
        // What was received is sent on, by its copy where the CPU has no other.
        await b.send("a", envelope.message);
        envelope.release();
        const back = await within(a.recv(), `message ${number} back`);
        expect(isMessage(back.message, number)).toBe(true);
        back.release();
      }
      // From memory of the pool, which the NIC reads where it lies.
      const buffer = await a.allocBuffer(MIB);
      buffer.bytes.set(messageOf(MIB, 9));
      await a.send("b", buffer.bytes);
      buffer.release();
      const last = await within(b.recv(), "the last message");
      expect(isMessage(last.message, 9)).toBe(true);
      last.release();
      await until(() => b.stats().rdma!.heldBytes === 0, "memory to come back");
      for (const each of [a, b])
        expect(await each.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
      await net.expectNothingLeft();
    });
  }

  test("a message that is out when its transport closes keeps its memory, which is registered no more", async () => {
    const net = fabric();
    const a = await net.open("a", "double0");
    const b = await net.open("b", "double1");
    await within(a.connect(b.addresses[0]!), "a to reach b");
    await a.send("b", messageOf(100_000, 1));
    const envelope = await within(b.recv(), "a message");
    await a.close();
    expect(await b.close()).toMatchObject({ buffers: 1 });
    expect(net.count("regions")).toBe(0);
    expect(isMessage(envelope.message, 1)).toBe(true);
    envelope.release();
    await net.expectNothingLeft();
  });

  test("HIP's own memory serves by dma-buf, where ROCm exports it", async () => {
    const net = new Fabric("hip", { runtime: 70_000_000 });
    const a = await net.open("a", "double0");
    const b = await net.open("b", "double1");
    await within(a.connect(b.addresses[0]!), "a to reach b");
    for (const [number, size] of [200, 200_000].entries()) {
      await a.send("b", messageOf(size, number));
      const envelope = await within(b.recv(), "a message");
      expect(accessTo(envelope.buffer!.devicePtr!)).toStartWith("---");
      expect(isMessage(envelope.message, number)).toBe(true);
      envelope.release();
    }
    expect(b.stats()).toMatchObject({ bytesCopied: 200_200, rdma: { method: "dma-buf" } });
    for (const each of [a, b]) await each.close();
    await net.expectNothingLeft();
  });

  for (const [what, set, behaviour, method] of [
    ["the NIC takes no dma-buf", { dmabuf_errno: EOPNOTSUPP, peermem: 1 }, {}, "peermem"],
    ["the GPU exports no dma-buf", { peermem: 1 }, { "attribute.124": 0 }, "peermem"],
    ["neither dma-buf nor peermem is to be had", { dmabuf_errno: EOPNOTSUPP }, {}, "page-locked"],
    ["the GPU has no memory of its own left", {}, { "fail.cuMemAlloc_v2": 2 }, "page-locked"],
  ] as const) {
    test(`where ${what}, the next way is ${method}`, async () => {
      const net = fabric();
      net.reset(behaviour);
      for (const [name, value] of Object.entries(set)) net.set(name, value);
      const a = await net.open("a", "double0");
      const b = await net.open("b", "double1");
      expect([a, b].map((each) => each.stats().rdma!.method)).toEqual([method, method]);
      await within(a.connect(b.addresses[0]!), "a to reach b");
      await a.send("b", messageOf(50_000, 1));
      const envelope = await within(b.recv(), "a message");
      expect(isMessage(envelope.message, 1)).toBe(true);
      envelope.release();
      for (const each of [a, b]) await each.close();
      await net.expectNothingLeft();
    });
  }

  test("where none does, the error names each and why, and nothing is left", async () => {
    const net = fabric();
    net.set("dmabuf_errno", EOPNOTSUPP);
    // The page-locked region of the first two is registered, and all of it is not.
    net.set("reg_errno", ENOMEM);
    net.set("reg_above", 79 * MIB);
    const error = (await failureOf(net.open("a", "double0"))) as NotAvailableError;
    expect(error).toBeInstanceOf(NotAvailableError);
    const { message } = error;
    expect(message).toStartWith(
      "gpudirect: no memory of a GPU could be registered with a network card by dma-buf: ",
    );
    expect(message).toMatch(
      /ibv_reg_dmabuf_mr of \d+ bytes of GPU memory, by dma-buf, at 0x[0-9a-f]+ with double0 failed with EOPNOTSUPP \(95\): this NIC's driver/,
    );
    expect(message).toMatch(
      /; peermem: .*ibv_reg_mr of \d+ bytes of GPU memory, by peermem, at 0x[0-9a-f]+ with double0 failed with EFAULT \(14\): nvidia-peermem is not loaded/,
    );
    expect(message).toMatch(
      /; page-locked: .*ibv_reg_mr of 83886080 bytes of page-locked host memory of the GPU's runtime at 0x[0-9a-f]+ with double0 failed with ENOMEM \(12\): .*ulimit -l/,
    );
    await net.expectNothingLeft();
  });

  test("an old libibverbs has no dma-buf, and says which one has", async () => {
    const net = new Fabric("cuda", {}, "libibverbs-old.so.1");
    const error = await failureOf(net.open("a", "double0", { ZAP_GPUDIRECT_METHOD: "dma-buf" }));
    expect(error.message).toContain("this libibverbs has no ibv_reg_dmabuf_mr: dma-buf needs rdma-core 34");
    net.set("peermem", 1);
    const a = await net.open("a", "double0");
    expect(a.stats().rdma!.method).toBe("peermem");
    await a.close();
    await net.expectNothingLeft();
  });

  test("what all ways fail for is told once", async () => {
    const net = fabric();
    const error = await failureOf(net.open("a", "double7"));
    expect(error.message).toContain(
      "by dma-buf, peermem, page-locked: libzap_gpudirect: opening double7 failed: ",
    );
    const broken = new DoubleHost("cuda", { "fail.cuInit": 100 });
    copyFileSync(join(theNative().doubles, IBVERBS), join(broken.host.root, "usr/lib", IBVERBS));
    const opening = await failureOf(openGpudirect({ nodeId: "a" }, SELECTION, broken.host));
    expect(opening.message).toContain(
      "by dma-buf, peermem, page-locked: libzap_uma_cuda: opening device 0 failed: ",
    );
    await net.expectNothingLeft();
  });

  for (const [method, set, reason] of [
    ["dma-buf", { dmabuf_errno: 93 }, "EPROTONOSUPPORT (93)"],
    ["peermem", {}, "EFAULT (14)"],
    ["page-locked", { reg_errno: ENOMEM, reg_above: MIB }, "ENOMEM (12)"],
  ] as const) {
    test(`${method} alone, where it was asked for, fails clearly, also where host memory is allowed`, async () => {
      const net = fabric();
      for (const [name, value] of Object.entries(set)) net.set(name, value);
      const env = { ZAP_GPUDIRECT_METHOD: method, ZAP_GPUDIRECT_HOST_MEMORY: "1" };
      const error = await failureOf(net.open("a", "double0", env));
      expect(error).toBeInstanceOf(NotAvailableError);
      expect(error.message).toContain(`network card by ${method}: `);
      expect(error.message).toContain(reason);
      expect(error.message).toEndWith("(the only one that ZAP_GPUDIRECT_METHOD allows)");
      await net.expectNothingLeft();
    });
  }

  test("host memory without the GPU is the last resort, where it is allowed", async () => {
    const net = fabric();
    net.reset({ "fail.cuMemHostAlloc": 2 });
    expect(await failureOf(net.open("a", "double0"))).toBeInstanceOf(NotAvailableError);
    const env = { ZAP_GPUDIRECT_HOST_MEMORY: "1" };
    const a = await net.open("a", "double0", env);
    expect(a.caps).toMatchObject({ gpuResident: false, zeroCopy: true });
    expect(a.stats().rdma).toMatchObject({ method: "host" });
    await a.close();
    await net.expectNothingLeft();
  });

  test("memory that the device does not let go of is never freed", async () => {
    const net = fabric();
    const a = await net.open("a", "double0");
    net.fail("ibv_dereg_mr", EBUSY);
    const error = await failureOf(a.close());
    expect(error.message).toContain("ibv_dereg_mr of double0 failed with EBUSY (16)");
    expect(net.count("regions")).toBe(2);
    expect(net.on.reported()).toEqual([]);
    // Nor after a failure midway: the region was registered, and the GPU's memory was not.
    net.call.ibverbs_double_reset();
    net.set("dmabuf_errno", EFAULT);
    net.fail("ibv_dereg_mr", EBUSY);
    const opening = await failureOf(net.open("b", "double1"));
    expect(opening).toBeInstanceOf(NotAvailableError);
    expect(opening.message).toContain("EFAULT (14)");
    expect(opening.message).toContain("its memory is still with the device");
    expect(net.count("regions")).toBe(3);
    expect(net.on.reported()).toEqual([]);
    // Later tests count from here, with doubles of their own.
    shared = null;
  });
});

describe.skipIf(none)("the probe of GPU memory registration", () => {
  beforeEach(() => fabric().reset());

  const row = async (env: Record<string, string> = {}) => {
    const { on } = fabric();
    const probe = await probeGpudirect({ ...on.host, env: { ...on.host.env, ...env } });
    return { probe, seen: probe.prerequisites.find((each) => each.name === REGISTRATION)! };
  };

  test("registers a small region by each method, and says what was seen", async () => {
    const { probe, seen } = await row();
    expect(seen.met).toBe(true);
    expect(seen.seen).toStartWith(
      "dma-buf: 64 KiB registered; peermem: libzap_gpudirect: registering it failed: ",
    );
    expect(seen.seen).toContain("failed with EFAULT (14): nvidia-peermem is not loaded");
    expect(seen.seen).toEndWith(
      "page-locked: 64 KiB registered (kernel 6.8, open driver 570.86.15, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED 1, nvidia_peermem not loaded)",
    );
    expect(probe).toMatchObject({ available: true, caps: { gpuResident: true, zeroCopy: false } });
    await fabric().expectNothingLeft();
  });

  for (const [only, set, behaviour] of [
    ["dma-buf", { reg_errno: 0 }, { "fail.cuMemHostAlloc": 2 }],
    ["peermem", { dmabuf_errno: EOPNOTSUPP, peermem: 1 }, { "fail.cuMemHostAlloc": 2 }],
    ["page-locked", { dmabuf_errno: EOPNOTSUPP }, {}],
  ] as const) {
    test(`${only} alone is enough`, async () => {
      const net = fabric();
      net.reset(behaviour);
      for (const [name, value] of Object.entries(set)) net.set(name, value);
      const { probe, seen } = await row();
      expect(seen).toMatchObject({ met: true, fix: "" });
      expect(seen.seen.split("KiB registered").length).toBe(2);
      expect(seen.seen).toContain(`${only}: 64 KiB registered`);
      expect(probe).toMatchObject({
        available: true,
        caps: { gpuResident: true, zeroCopy: only === "page-locked" },
      });
      await net.expectNothingLeft();
    });
  }

  test("none is told with each failure and a fix", async () => {
    const net = fabric();
    net.reset({ "fail.cuMemHostAlloc": 2, "attribute.124": 0 });
    const { probe, seen } = await row();
    expect(seen.met).toBe(false);
    expect(seen.seen).toContain("dma-buf: libzap_uma_cuda: exporting a region failed: ");
    expect(seen.seen).toContain("page-locked: libzap_uma_cuda: ");
    expect(seen.seen).toContain("CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED 0");
    expect(seen.fix.split("\n")).toEqual([
      "sudo modprobe nvidia-peermem",
      "For page-locked memory, let this process lock as much as it wants:",
      "ulimit -l unlimited",
    ]);
    expect(probe.available).toBe(false);
    const { probe: allowed } = await row({ ZAP_GPUDIRECT_HOST_MEMORY: "1" });
    expect(allowed).toMatchObject({
      available: true,
      memory: "locked",
      caps: { gpuResident: false, zeroCopy: true },
    });
    await net.expectNothingLeft();
  });

  test("a method that was asked for has to be the one that works", async () => {
    const { seen } = await row({ ZAP_GPUDIRECT_METHOD: "peermem" });
    expect(seen).toMatchObject({ met: false, fix: "export ZAP_GPUDIRECT_METHOD=dma-buf" });
    expect(seen.seen).toStartWith("ZAP_GPUDIRECT_METHOD is peermem; dma-buf: 64 KiB registered; peermem: ");
    const { seen: locked, probe } = await row({ ZAP_GPUDIRECT_METHOD: "page-locked" });
    expect(locked.met).toBe(true);
    expect(probe.caps).toMatchObject({ gpuResident: true, zeroCopy: true });
  });

  test("a GPU that does not open is told of", async () => {
    fabric().reset({ "fail.cuDevicePrimaryCtxRetain": 2 });
    const { seen } = await row();
    expect(seen.met).toBe(false);
    expect(seen.seen).toContain("opening device 0 failed");
    expect(seen.seen).toEndWith("; nothing was registered");
  });

  test("without a network card page-locked memory, where it was asked for, takes no module", async () => {
    fabric().set("devices", 0);
    const { seen } = await row({ ZAP_GPUDIRECT_METHOD: "page-locked" });
    expect(seen.met).toBe(true);
    expect(seen.seen).toStartWith("page-locked memory takes no more than the GPU; by the host's files");
  });

  test("without a network card it goes by the host's files, and says so", async () => {
    fabric().set("devices", 0);
    const { seen } = await row();
    expect(seen.seen).toBe(
      "dma-buf: open NVIDIA driver 570.86.15, kernel 6.8; by the host's files, as nothing could be registered",
    );
  });
});
