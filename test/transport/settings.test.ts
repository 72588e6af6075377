import { describe, expect, test } from "bun:test";
import { umaPoolBytes } from "../../lib/memory/index.ts";
import { readFlag } from "../../lib/settings/index.ts";
import { pick, resolveSelection } from "../../lib/transport/index.ts";
import { checkSettings } from "../../lib/transport/settings.ts";
import { failureOf } from "../support/wait.ts";

const onEvent = (): void => {};

async function faultOf(options: unknown): Promise<string> {
  const opening = pick("default", options as Parameters<typeof pick>[1]);
  opening.then(
    (transport) => transport.close(),
    () => {},
  );
  const error = await failureOf(opening);
  expect(error.code).toBe("ERR_ZAP_CONFIG");
  return error.message;
}

describe("ZAP_UMA_POOL_BYTES", () => {
  test("is decimal bytes, 0 for no bound, and 4 GiB where it is not set", () => {
    expect(umaPoolBytes({})).toBe(4 * 1024 ** 3);
    expect(umaPoolBytes({ ZAP_UMA_POOL_BYTES: " " })).toBe(4 * 1024 ** 3);
    expect(umaPoolBytes({ ZAP_UMA_POOL_BYTES: " 4096 " })).toBe(4096);
    expect(umaPoolBytes({ ZAP_UMA_POOL_BYTES: "0" })).toBe(0);
  });

  for (const text of ["abc", "4G", "0x10", "1e9", "-1", "1.5", "9".repeat(20)]) {
    test(`is not ${JSON.stringify(text)}, whichever transport is picked`, async () => {
      expect(() => umaPoolBytes({ ZAP_UMA_POOL_BYTES: text })).toThrow("ZAP_UMA_POOL_BYTES");
      expect(await faultOf({ env: { ZAP_UMA_POOL_BYTES: text }, onEvent })).toContain("ZAP_UMA_POOL_BYTES");
    });
  }
});

describe("a variable that says yes or no", () => {
  test("takes the same words in any case, and nothing set for no", () => {
    for (const value of ["1", "true", "yes", " YES ", "True\n"])
      expect(readFlag({ ZAP_DEBUG: value }, "ZAP_DEBUG")).toBe(true);
    for (const value of ["0", "false", "no", "", "  ", "No", undefined])
      expect(readFlag({ ZAP_DEBUG: value }, "ZAP_DEBUG")).toBe(false);
    expect(readFlag({}, "ZAP_DEBUG")).toBe(false);
  });

  test("is shown as it was written, but not pages of it", () => {
    expect(() => readFlag({ ZAP_DEBUG: " Perhaps" }, "ZAP_DEBUG")).toThrow(
      'ZAP_DEBUG is " Perhaps"; it takes 1, true, yes, 0, false or no',
    );
    expect(() => readFlag({ ZAP_DEBUG: "x".repeat(1_000) }, "ZAP_DEBUG")).toThrow(
      `ZAP_DEBUG is "${"x".repeat(60)}"; it`,
    );
  });
});

describe("a value that cannot be used", () => {
  const cases: [string, string, string][] = [
    ["ZAP_UMA_POOL_BYTES", "4G", "decimal bytes"],
    ["ZAP_CUDA_DEVICE", "1024", "from 0 to 1023"],
    ["ZAP_CUDA_DEVICE", "-1", "from 0 to 1023"],
    ["ZAP_DEVICE_MILLIS", "0", "from 1 to 3600000"],
    ["ZAP_DEVICE_MILLIS", "3600001", "from 1 to 3600000"],
    ["ZAP_DPDK_ADDRESS", "10.0.0.1", "addresses with their prefix"],
    ["ZAP_DPDK_QUEUES", "17", "from 1 to 16"],
    ["ZAP_DPDK_IDLE", "Maybe", "spin, yield or sleep"],
    ["ZAP_DPDK_HUGEPAGES", "Maybe", "1, true, yes, 0, false or no"],
    ["ZAP_DEBUG", "Maybe", "1, true, yes, 0, false or no"],
    ["ZAP_TRANSPORT_QUIET", "Maybe", "1, true, yes, 0, false or no"],
    ["ZAP_TRANSPORT_STRICT", "Maybe", "1, true, yes, 0, false or no"],
  ];
  for (const [name, value, taken] of cases) {
    test(`is the same error for pick, resolveSelection and checkSettings: ${name}=${value}`, async () => {
      const env = { [name]: value };
      const said = await failureOf(resolveSelection("default", { env }));
      expect(said.code).toBe("ERR_ZAP_CONFIG");
      expect(said.message).toStartWith(`${name} is ${JSON.stringify(value)}; it takes `);
      expect(said.message).toContain(taken);
      expect(await faultOf({ env, onEvent })).toBe(said.message);
      expect(await faultOf({ env, onEvent, strict: false })).toBe(said.message);
      expect(() => checkSettings(env)).toThrow(said.message);
    });
  }

  test("is looked for before the name of the transport", async () => {
    const env = { ZAP_TRANSPORT: "no-such", ZAP_DEBUG: "maybe" };
    expect((await failureOf(resolveSelection(undefined, { env }))).message).toContain("ZAP_DEBUG");
  });

  test("is none at the ends of the ranges", () => {
    for (const [name, value] of [
      ["ZAP_CUDA_DEVICE", "1023"],
      ["ZAP_DEVICE_MILLIS", "1"],
      ["ZAP_DEVICE_MILLIS", "3600000"],
      ["ZAP_UMA_POOL_BYTES", "0"],
    ] as const)
      expect(() => checkSettings({ [name]: value })).not.toThrow();
  });
});

describe("what pick is given", () => {
  const env = { ZAP_TRANSPORT_QUIET: "1" };
  const cases: [string, unknown, string][] = [
    ["no object", null, "options"],
    ["an option of an unknown name", { nodeID: "a", env }, "nodeID"],
    ["a strict that is text", { strict: "yes", env }, "strict"],
    ["a quiet that is neither yes nor no", { env: { ZAP_TRANSPORT_QUIET: "maybe" } }, "ZAP_TRANSPORT_QUIET"],
    ["limits that are null", { limits: null, env }, "limits"],
    ["limits that are a number", { limits: 5, env }, "limits"],
    ["limits that are a list", { limits: [], env }, "limits"],
    ["a time that no timer takes", { limits: { closeMillis: 2 ** 31 }, env }, "limits.closeMillis"],
    [
      "a first pause above the last",
      { limits: { reconnectMinMillis: 1_000, reconnectMaxMillis: 10 }, env },
      "limits.reconnectMinMillis",
    ],
  ];
  for (const [what, options, name] of cases) {
    test(`is refused, and named: ${what}`, async () => {
      expect(await faultOf(options)).toContain(name);
    });
  }

  test("may be the longest time that a timer takes", async () => {
    const transport = await pick("default", { limits: { closeMillis: 2 ** 31 - 1 }, env, onEvent });
    expect(await transport.close()).toEqual({ undelivered: 0, unread: 0, buffers: 0 });
  });
});
