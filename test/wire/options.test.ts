import { describe, expect, test } from "bun:test";
import { pick, type TransportOptions } from "../../lib/transport/index.ts";
import { DEFAULT_LIMITS, type Limits } from "../../lib/wire/index.ts";
import { failureOf } from "../support/wait.ts";

const QUIET = { env: { ZAP_TRANSPORT_QUIET: "1" }, onEvent: (): void => {} };

async function faultOf(options: unknown): Promise<{ code: string; text: string }> {
  const opening = pick("default", { ...QUIET, ...(options as TransportOptions) });
  opening.then(
    (transport) => transport.close(),
    () => {},
  );
  const error = await failureOf(opening);
  return { code: error.code ?? "no code", text: error.message };
}

describe("a limit", () => {
  const names = Object.keys(DEFAULT_LIMITS) as (keyof Limits)[];
  for (const name of names) {
    test(`${name} is a positive integer`, async () => {
      for (const value of [0, -1, 1.5, NaN, Infinity, 2 ** 53, "5", "", null, true, {}, 5n]) {
        const { code, text } = await faultOf({ limits: { [name]: value } });
        expect([code, text.split(":")[0]]).toEqual(["ERR_ZAP_CONFIG", `limits.${name}`]);
        expect(text).toContain("positive integer");
      }
    });
  }

  test("frameBytes is at least a header and at most 1 GiB", async () => {
    for (const frameBytes of [1, 15, 1024 ** 3 + 1]) {
      expect((await faultOf({ limits: { frameBytes } })).text).toStartWith("limits.frameBytes");
    }
    const transport = await pick("default", { limits: { frameBytes: 16 }, ...QUIET });
    await transport.close();
  });

  test("of an unknown name is refused, and the known ones are listed", async () => {
    const { code, text } = await faultOf({ limits: { frameByte: 1 } });
    expect(code).toBe("ERR_ZAP_CONFIG");
    expect(text).toContain("limits.frameByte");
    for (const name of names) expect(text).toContain(name);
    expect((await faultOf({ limits: { toString: 1 } })).text).toContain("limits.toString");
  });

  test("that is undefined takes its default", async () => {
    const limits = Object.fromEntries(names.map((name) => [name, undefined])) as Partial<Limits>;
    const transport = await pick("default", { limits, ...QUIET });
    await transport.close();
  });
});

describe("an option that cannot be used is refused, and named:", () => {
  const pem = "-----BEGIN CERTIFICATE-----\n";
  const cases: [string, unknown, string][] = [
    ["an empty node id", { nodeId: "" }, "nodeId"],
    ["a node id of 61 bytes", { nodeId: "x".repeat(61) }, "nodeId"],
    ["a node id of 21 three-byte characters", { nodeId: "€".repeat(21) }, "nodeId"],
    ["a node id with a line feed", { nodeId: "a\nb" }, "nodeId"],
    ["a node id that is no text", { nodeId: 5 }, "nodeId"],
    ["a bad id among the peers", { peers: { "a\0": "127.0.0.1:9000" } }, "peers"],
    ["an empty id among the peers", { peers: { "": "127.0.0.1:9000" } }, "peers"],
    ["the own id among the peers", { nodeId: "me", peers: { me: "127.0.0.1:9000" } }, "peers"],
    ["allow as text", { allow: "friend" }, "allow"],
    ["allow as a number", { allow: 5 }, "allow"],
    ["an empty id in allow", { allow: ["a", ""] }, "allow"],
    ["a number in allow", { allow: [5] }, "allow"],
    ["tls without anything", { tls: {} }, "tls"],
    ["tls as text", { tls: "yes" }, "tls"],
    ["tls as null", { tls: null }, "tls"],
    ["tls without cert", { tls: { key: pem, ca: pem } }, "tls.cert"],
    ["tls without key", { tls: { cert: pem, ca: pem } }, "tls.key"],
    ["tls without ca", { tls: { cert: pem, key: pem } }, "tls.ca"],
    ["tls with an empty cert", { tls: { cert: "", key: pem, ca: pem } }, "tls.cert"],
    ["tls with a key of no bytes", { tls: { cert: pem, key: new Uint8Array(0), ca: pem } }, "tls.key"],
    ["tls with an empty list of authorities", { tls: { cert: pem, key: pem, ca: [] } }, "tls.ca"],
    ["tls with an empty authority", { tls: { cert: pem, key: pem, ca: [pem, ""] } }, "tls.ca"],
    ["tls with a cert that is no PEM", { tls: { cert: 5, key: pem, ca: pem } }, "tls.cert"],
    ["versions that are no list", { versions: 1 }, "versions"],
    ["no versions at all", { versions: [] }, "versions"],
    ["a version that no header can hold", { versions: [65_536] }, "versions"],
    ["an event listener that cannot be called", { onEvent: "log" }, "onEvent"],
  ];
  for (const [what, options, name] of cases) {
    test(what, async () => {
      const { code, text } = await faultOf({ listen: "127.0.0.1:0", ...(options as object) });
      expect(code).toBe("ERR_ZAP_CONFIG");
      expect(text).toStartWith(name);
    });
  }

  test("an address of a peer", async () => {
    const { code, text } = await faultOf({ peers: { b: "nowhere" } });
    expect(["ERR_ZAP_ADDRESS", "ERR_ZAP_CONFIG"]).toContain(code);
    expect(text).toContain('"nowhere"');
    expect((await faultOf({ peers: { b: 9_000 } })).code).toMatch(/ERR_ZAP_(ADDRESS|CONFIG)/);
  });

  test("a place to listen", async () => {
    for (const listen of ["nowhere", ["127.0.0.1:0", "nowhere"], "127.0.0.1:99999"]) {
      const { code, text } = await faultOf({ listen });
      expect(code).toBe("ERR_ZAP_ADDRESS");
      expect(text).toMatch(/nowhere|99999/);
    }
    for (const listen of [9_000, [9_000], null, {}]) {
      expect((await faultOf({ listen })).code).toMatch(/ERR_ZAP_(ADDRESS|CONFIG)/);
    }
  });

  test("a certificate that TLS cannot read, when the transport is opened", async () => {
    const nonsense = "this is no PEM";
    const tls = { cert: nonsense, key: nonsense, ca: nonsense };
    const { code, text } = await faultOf({ listen: "127.0.0.1:0", tls });
    expect(code).toBe("ERR_ZAP_CONFIG");
    expect(text).toContain("tls");
    expect(text).not.toContain(nonsense);
    // Without a listener too: a node that can only dial must not find out at its first dial.
    expect((await faultOf({ tls })).code).toBe("ERR_ZAP_CONFIG");
  });
});

describe("a node id", () => {
  test("is a random one where none is given", async () => {
    const [a, b] = [await pick("default", QUIET), await pick("default", QUIET)];
    expect(a.nodeId).not.toBe(b.nodeId);
    expect(Buffer.byteLength(a.nodeId)).toBeLessThanOrEqual(60);
    await Promise.all([a.close(), b.close()]);
  });

  test("may have 60 bytes of any writing", async () => {
    for (const nodeId of ["x".repeat(60), "é".repeat(30), "节点 7 🦊"]) {
      const transport = await pick("default", { nodeId, ...QUIET });
      expect(transport.nodeId).toBe(nodeId);
      await transport.close();
    }
  });
});
