import { describe, expect, test } from "bun:test";
import { GPUDIRECT_SETTINGS, readText } from "../../../lib/ffi/index.ts";
import { gpudirectEnvironment, resolveVerbsOptions } from "../../../lib/wire/index.ts";
import { packSettings } from "../../../lib/wire/verbs/structures.ts";

const MIB = 2 ** 20;

describe("the environment", () => {
  test("has defaults", () => {
    expect(gpudirectEnvironment({})).toEqual({
      device: "",
      port: 0,
      gidIndex: -1,
      spin: false,
      eagerBytes: 8192,
      receives: 64,
      trafficClass: 0,
      timeoutMillis: 250,
      hostMemory: false,
      method: "auto",
      regionBytes: 256 * MIB,
    });
  });

  for (const [name, value] of [
    ["ZAP_GPUDIRECT_DEVICE", "mlx5 0"],
    ["ZAP_GPUDIRECT_DEVICE", "x".repeat(64)],
    ["ZAP_GPUDIRECT_PORT", "0"],
    ["ZAP_GPUDIRECT_GID_INDEX", "-1"],
    ["ZAP_GPUDIRECT_IDLE", "yield"],
    ["ZAP_GPUDIRECT_EAGER_BYTES", "1000"],
    ["ZAP_GPUDIRECT_EAGER_BYTES", "128"],
    ["ZAP_GPUDIRECT_RECEIVES", "8"],
    ["ZAP_GPUDIRECT_TRAFFIC_CLASS", "256"],
    ["ZAP_GPUDIRECT_TIMEOUT_MILLIS", "0"],
    ["ZAP_GPUDIRECT_HOST_MEMORY", "maybe"],
    ["ZAP_GPUDIRECT_METHOD", "managed"],
    ["ZAP_GPUDIRECT_REGION_BYTES", "1GiB"],
  ] as const) {
    test(`${name}=${value.slice(0, 12)} is an error that names it`, () => {
      expect(() => gpudirectEnvironment({ [name]: value })).toThrow(name);
    });
  }
});

describe("the options", () => {
  test("a region that is too small for the largest message is an error", () => {
    const environment = gpudirectEnvironment({ ZAP_GPUDIRECT_REGION_BYTES: String(40 * MIB) });
    expect(() => resolveVerbsOptions({ limits: { frameBytes: 10 * MIB } }, environment)).toThrow(
      `needs at least ${72 * MIB}`,
    );
  });

  test("the areas fit, and the largest message fits into each that it has to", () => {
    for (const frameMib of [1, 3, 10, 16, 100, 500]) {
      const regionBytes = (32 + 4 * frameMib) * MIB;
      const environment = gpudirectEnvironment({ ZAP_GPUDIRECT_REGION_BYTES: String(regionBytes) });
      const { areas, flows } = resolveVerbsOptions({ limits: { frameBytes: frameMib * MIB } }, environment);
      const heads = (areas.eager / 8192 + flows * 256) * 64;
      expect(areas.eager + areas.messages + areas.pool + heads + 9 * MIB).toBeLessThanOrEqual(regionBytes);
      expect(areas.messages).toBeGreaterThanOrEqual(2 ** Math.ceil(Math.log2(frameMib * MIB)));
      expect(areas.pool).toBeGreaterThan((frameMib + 1) * MIB);
      expect(areas.eager / 8192).toBeGreaterThanOrEqual(128);
    }
  });

  test("what two nodes say to each other needs version 1", () => {
    const environment = gpudirectEnvironment({});
    expect(resolveVerbsOptions({ versions: [2, 1] }, environment).versions).toEqual([2, 1]);
    for (const versions of [[2], [1, 2, 3, 4, 5]])
      expect(() => resolveVerbsOptions({ versions }, environment)).toThrow("1 among them");
  });

  test("go to the native side as they are", () => {
    const environment = gpudirectEnvironment({
      ZAP_GPUDIRECT_DEVICE: "rxe0",
      ZAP_GPUDIRECT_PORT: "2",
      ZAP_GPUDIRECT_GID_INDEX: "3",
      ZAP_GPUDIRECT_IDLE: "spin",
      ZAP_GPUDIRECT_TRAFFIC_CLASS: "104",
    });
    const options = resolveVerbsOptions({ versions: [1, 2] }, environment);
    const host = { address: 0x7000_0000_1000, bytes: 256 * MIB };
    const memory = packSettings(options, "/lib/libibverbs.so.1", host);
    const { at, texts } = GPUDIRECT_SETTINGS;
    const view = new DataView(memory.buffer);
    expect(readText(memory, at.runtime, texts.runtime)).toBe("/lib/libibverbs.so.1");
    expect(readText(memory, at.device, texts.device)).toBe("rxe0");
    const words = (["port", "gid_index", "flags", "traffic_class", "eager_bytes", "receives"] as const).map(
      (name) => view.getUint32(at[name], true),
    );
    expect(words).toEqual([2, 3, 1, 104, 8192, 64]);
    expect(view.getBigUint64(at.host_address, true)).toBe(0x7000_0000_1000n);
    expect(view.getBigUint64(at.versions, true)).toBe(0x20001n);
    expect(() => packSettings(options, "/".repeat(256), null)).toThrow("too long");
  });
});

describe("a GPU's own memory", () => {
  const { at } = GPUDIRECT_SETTINGS;
  const options = resolveVerbsOptions({}, gpudirectEnvironment({}));
  const host = { address: 4096, bytes: 1 * MIB };
  const pack = (own: Parameters<typeof packSettings>[3]): DataView =>
    new DataView(packSettings(options, "/lib/x.so", host, own).buffer);

  test("is told of with its method, and a descriptor for a dma-buf alone", () => {
    const address = 0x7f00_1234_0000;
    const byDmaBuf = pack({ address, bytes: 3 * MIB, method: "dma-buf", dmaBuf: 17 });
    expect(byDmaBuf.getBigUint64(at.device_address, true)).toBe(BigInt(address));
    expect(byDmaBuf.getBigUint64(at.device_bytes, true)).toBe(BigInt(3 * MIB));
    expect(byDmaBuf.getInt32(at.dma_buf_fd, true)).toBe(17);
    expect(byDmaBuf.getUint32(at.method, true)).toBe(1);
    const byPeermem = pack({ address, bytes: 3 * MIB, method: "peermem", dmaBuf: -1 });
    expect(byPeermem.getUint32(at.method, true)).toBe(2);
    expect(byPeermem.getInt32(at.dma_buf_fd, true)).toBe(-1);
  });

  test("is not there where messages lie in the region", () => {
    const without = pack(null);
    expect(without.getBigUint64(at.device_address, true)).toBe(0n);
    expect(without.getUint32(at.method, true)).toBe(0);
    expect(without.getInt32(at.dma_buf_fd, true)).toBe(-1);
  });

  test("is chosen by the environment", () => {
    for (const method of ["auto", "dma-buf", "peermem", "page-locked"] as const)
      expect(gpudirectEnvironment({ ZAP_GPUDIRECT_METHOD: ` ${method.toUpperCase()}` }).method).toBe(method);
  });
});
