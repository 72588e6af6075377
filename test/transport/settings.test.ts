import { describe, expect, test } from "bun:test";
import { umaPoolBytes } from "../../lib/memory/index.ts";
import { pick } from "../../lib/transport/index.ts";
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
